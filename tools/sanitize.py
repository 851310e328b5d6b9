"""Small calls of every kernel, for NVIDIA's compute-sanitizer, which makes each of them some hundred times slower.

    compute-sanitizer --tool memcheck python tools/sanitize.py
    compute-sanitizer --tool racecheck python tools/sanitize.py [--only 'hopper*'] [--list]

The `empty` kernels are Gluon kernels that hand work to other warps, which do nothing or wait for each other at a
barrier. What racecheck reports for these is due to Triton's hand-over and applies to every kernel that has one."""

from __future__ import annotations

import argparse
import fnmatch
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier

import groundspeed as gs
from groundspeed.kernels.hopper import barriers
from groundspeed.kernels.moe.api import moe
from groundspeed.kernels.moe.dense import matmul


@gluon.jit
def _first(x_ptr):
    gl.store(x_ptr, 1.0)


@gluon.jit
def _second(x_ptr):
    gl.store(x_ptr + 1, 2.0)


@gluon.jit
def handed_over(x_ptr):
    gl.warp_specialize([(_first, (x_ptr,)), (_second, (x_ptr,)), (_second, (x_ptr,))], [4, 1], [128, 24])


@gluon.jit
def _waiting(x_ptr, barrier):
    mbarrier.wait(barrier, 0)
    gl.store(x_ptr, 1.0)


@gluon.jit
def _arriving(x_ptr, barrier):
    gl.store(x_ptr + 1, 2.0)
    mbarrier.arrive(barrier, count=1)


@gluon.jit
def met_at_a_barrier(x_ptr):
    barrier = barriers(1, 1).index(0)
    gl.warp_specialize([(_waiting, (x_ptr, barrier)), (_arriving, (x_ptr, barrier))], [1], [24])


def _empty(kernel: Any) -> None:
    kernel[(2,)](torch.zeros(2, device="cuda"), num_warps=4, maxnreg=128)


def _random(*shape: int) -> Any:
    return torch.randn(shape, device="cuda").bfloat16()


def _attention(impl: str, B: int, H: int, M: int, N: int, D: int, **asked: Any) -> None:
    gs.attention(_random(B, H, M, D), _random(B, H, N, D), _random(B, H, N, D), return_lse=True, impl=impl, **asked)


def _packed(impl: str, **asked: Any) -> None:
    cu = torch.tensor([0, 1, 131, 208, 464], dtype=torch.int32, device="cuda")
    gs.attention_varlen(*(_random(464, 2, 64) for _ in range(3)), cu, cu, 256, impl=impl, **asked)


def _paged(page: int, queries: int, **asked: Any) -> None:
    """Page entries that must not be followed point out of bounds, and there are no more entries than needed."""
    lengths = torch.tensor([0, 1, 130, 1000], dtype=torch.int32, device="cuda")
    entries = -(-1000 // page)
    pages = torch.arange(4 * entries, dtype=torch.int32, device="cuda").view(4, entries)
    pages.masked_fill_(torch.arange(entries, device="cuda") * page >= lengths[:, None], -(1 << 31))
    kept = [_random(4 * entries, 2, page, 64) for _ in range(2)]
    gs.append_paged(_random(4, 2, 200, 64), _random(4, 2, 200, 64), *kept, pages, lengths)
    gs.attention_paged(_random(4, 4, queries, 64), *kept, pages, lengths, impl="triton", **asked)


def _moe(impl: str, tokens: int) -> None:
    x, router, up, down = _random(tokens, 128), _random(4, 128), _random(4, 512, 128), _random(4, 128, 256)
    moe(x, router, up, down, top_k=2, activation="swiglu", impl=impl)


def _product(impl: str) -> None:
    matmul(_random(300, 256), _random(264, 256), hopper=impl == "hopper")


def _rows() -> None:
    x, weight = _random(300, 264), _random(264)
    gs.layer_norm(x, weight, weight, residual=x, impl="triton")
    gs.rms_norm(_random(40, 3, 20)[:, :2], weight[:20], impl="triton")
    gs.layer_norm(_random(3, 20008), _random(20008), residual=_random(3, 20008), impl="triton")
    q, angle = _random(2, 77, 5, 80).transpose(1, 2), torch.rand(1, 77, 16, device="cuda")
    gs.rotary(q, q[:, :2], angle, angle, impl="triton")
    gs.activate(x, impl="triton")
    gs.activate(_random(77, 1001), "gelu", impl="triton")


def calls() -> dict[str, Callable[[], None]]:
    found: dict[str, Callable[[], None]] = {
        "empty": partial(_empty, handed_over),
        "empty, with a barrier": partial(_empty, met_at_a_barrier),
    }
    for impl in ("hopper", "triton"):
        dense = partial(_attention, impl)
        for D in (64, 96, 128, 256):
            found[f"{impl} d{D}"] = partial(dense, 1, 2, 300, 300, D)
            found[f"{impl} d{D} causal"] = partial(dense, 1, 2, 300, 300, D, causal=True)
        found[f"{impl} turns"] = partial(dense, 1, 1, 1100, 2100, 64)
        found[f"{impl} many tiles"] = partial(dense, 40, 4, 130, 130, 64, causal=True)
        found[f"{impl} two consumers, many tiles"] = partial(dense, 20, 8, 130, 300, 128, causal=True)
        found[f"{impl} window"] = partial(dense, 1, 2, 300, 300, 128, causal=True, window_size=(100, 0))
        found[f"{impl} soft-cap"] = partial(dense, 1, 2, 300, 300, 128, softcap=20.0)
        found[f"{impl} packed"] = partial(_packed, impl)
        found[f"{impl} packed causal"] = partial(_packed, impl, causal=True)
        found[f"{impl} experts, few tokens"] = partial(_moe, impl, 8)
        found[f"{impl} experts"] = partial(_moe, impl, 700)
        found[f"{impl} product"] = partial(_product, impl)
    found["triton rows"] = _rows
    found["triton decode"] = partial(_attention, "triton", 1, 4, 3, 2000, 128, causal=True)
    for page in (16, 64):
        found[f"triton pages of {page}"] = partial(_paged, page, 1)
        found[f"triton pages of {page}, window"] = partial(_paged, page, 100, window_size=(60, -1))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="*", help="only calls whose name matches this pattern")
    parser.add_argument("--list", action="store_true", help="only list the names")
    options = parser.parse_args()
    for name, call in calls().items():
        if fnmatch.fnmatch(name, options.only):
            print(name, flush=True)
            if not options.list:
                call()
                torch.cuda.synchronize()


if __name__ == "__main__":
    main()
