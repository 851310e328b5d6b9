"""`gs.compile_graphs`: the user's options and their checks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import nn

from groundspeed.nn.graphs.buckets import Buckets, checked
from groundspeed.nn.graphs.graphed import Graphed, Options
from groundspeed.nn.graphs.modules import behind

IMPLS = ("auto", "cuda", "torch")


def compile_graphs(
    function: Callable[..., Any] | None = None,
    *,
    buckets: Buckets | None = None,
    pad_value: Any = 0,
    in_place: Sequence[str] = (),
    modules: Sequence[nn.Module] | None = None,
    copy_outputs: bool = True,
    slice_outputs: bool = True,
    max_graphs: int = 64,
    warmup: int = 3,
    restore: bool = True,
    impl: str = "auto",
) -> Any:
    """Return a callable that replays the calls of a function or module from CUDA graphs, so that Python launches
    nothing. For inference.

        fast = gs.compile_graphs(model)
        fast = gs.compile_graphs(model, buckets={"tokens": {1: (1, 8, 64)}})

    Every new combination of shapes, dtypes and plain values among the arguments is captured at its first call, up to
    `max_graphs`. `buckets` gives, by argument and dimension, the sizes to which tensors are padded with `pad_value`
    (one value, or one for each argument); result dimensions that follow a padded dimension are cut back. Padding is
    correct only if no position sees another one, or if a mask or lengths among the arguments say which positions count.
    The first padded call of each bucket is compared with a call without padding, and warns if they differ. With
    buckets, everything that they do not name must stay as in the first call, or the call raises.

    Arguments are copied into the graph. Those named in `in_place` are used in place and may be written to, as caches
    are; a tensor at another address gets a graph of its own. Results are copies; with `copy_outputs=False` they are the
    graph's own tensors, which its next call overwrites.

    `modules` are the modules whose parameters the function reads; by default they are found in the function. If
    parameters have moved, everything is captured again. Before a capture the function is called `warmup` times. What
    these calls write to the modules' buffers, to `in_place` arguments and to the tensors in other objects that the
    function names, such as caches, is restored from copies; `restore=False` makes no copies, and is correct if calling
    the function again with the same arguments changes nothing.

    `impl="auto"` calls the function directly if tensors are not on an NVIDIA GPU, and warns once; `"cuda"` raises in
    that case, and `"torch"` always calls the function directly."""
    if function is None:
        return lambda given: compile_graphs(
            given,
            buckets=buckets,
            pad_value=pad_value,
            in_place=in_place,
            modules=modules,
            copy_outputs=copy_outputs,
            slice_outputs=slice_outputs,
            max_graphs=max_graphs,
            warmup=warmup,
            restore=restore,
            impl=impl,
        )
    if not callable(function):
        raise TypeError(f"compile_graphs takes a function or a module, not {type(function).__name__}")
    if impl not in IMPLS:
        raise ValueError(f"impl={impl!r:.80} is unknown; choose from {', '.join(IMPLS)}")
    for name, number in (("max_graphs", max_graphs), ("warmup", warmup)):
        if type(number) is not int or number < 1:
            raise ValueError(f"{name} must be a whole number of at least 1, not {number!r:.80}")
    if isinstance(in_place, str):
        raise ValueError(f"in_place must be a list of names: write in_place=[{in_place!r}]")
    options = Options(
        checked(buckets or {}),
        dict(pad_value) if isinstance(pad_value, Mapping) else pad_value,
        tuple(in_place),
        copy_outputs,
        slice_outputs,
        max_graphs,
        warmup,
        restore,
        impl,
    )
    return Graphed(function, options, behind(function) if modules is None else modules)
