"""`gs.compile_graphs`: what a user may ask for."""

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
    """A function or module whose calls are replayed from CUDA graphs, so that nothing of it is launched. For inference.

        fast = gs.compile_graphs(model)
        fast = gs.compile_graphs(model, buckets={"tokens": {1: (1, 8, 64)}})

    Every new combination of shapes, dtypes and plain values among the arguments is captured at its first call, up to
    `max_graphs`. `buckets` says, by argument and dimension, to which sizes tensors are padded with `pad_value` (one, or
    one for each argument); what follows a padded dimension in the results is cut back. That is right only where no
    position sees another one, or where a mask or lengths among the arguments say which are meant: the first padded call
    of a bucket is held against one without padding, and warns where they are apart. With buckets, what they do not name
    stays as in the first call, or it raises.

    Arguments are copied into the graph. Those named in `in_place` are used where they lie, and may be written to, as
    caches are; others at another place are another graph. Results are copies; with `copy_outputs=False` they are the
    graph's own, which its next call overwrites.

    `modules` are those whose parameters it reads: found in the function where not told. Where they have moved, all is
    captured again. Before a capture the function is called `warmup` times; what these calls write to modules' buffers
    and to `in_place` arguments is put back, for which they are copied: `restore=False` spares that, where being called
    again with the same arguments changes nothing.

    `impl="auto"` calls straight through where tensors are not on an NVIDIA GPU, and says so once; `"cuda"` raises, and
    `"torch"` calls straight through always."""
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
        raise ValueError(f"impl={impl!r:.80} is unknown: {', '.join(IMPLS)}")
    for name, number in (("max_graphs", max_graphs), ("warmup", warmup)):
        if type(number) is not int or number < 1:
            raise ValueError(f"{name} is a number from 1 up, not {number!r:.80}")
    if isinstance(in_place, str):
        raise ValueError(f"in_place is a list of names: write in_place=[{in_place!r}]")
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
