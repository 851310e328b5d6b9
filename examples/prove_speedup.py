"""Prove on your own machine that a function which you replaced is faster.

    python examples/prove_speedup.py
    python examples/prove_speedup.py --device cuda --dtype bf16 --shape B=4,H=32,S=4096,D=128,causal=1

Put your own code into `before` and `after`. Here the attention of a model, written out as in a textbook, is replaced:
on a GPU by groundspeed's, on a CPU by PyTorch's. Both do the work of a case of the suite `attention`, so that both are
checked against its FP64 oracle, before timing and on timed calls: what is fast and wrong gets no verdict.

Whatever comes out is kept as a bundle: raw samples, versions, hashes. Who doubts the claim recomputes it from there
with `groundspeed verify`, without this script and without a GPU.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

import groundspeed as gs

ON_A_CPU, ON_A_GPU = "B=1,H=4,S=512,D=64,causal=1", "B=4,H=16,S=4096,D=128,causal=1"


# Every measuring process imports this file again and finds the two by their decorators. q, k and v are
# [batch, heads, sequence, dimension]; other suites hand over other inputs (`groundspeed list`).
@gs.contender("attention", name="before")
def before(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """All scores at once"""
    scores = q @ k.mT * scale
    if causal:
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
        scores = scores.masked_fill(hidden, float("-inf"))
    return scores.softmax(-1) @ v


@gs.contender("attention", name="after")
def after(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """groundspeed's attention on a GPU, PyTorch's on a CPU"""
    if q.is_cuda:
        return gs.attention(q, k, v, causal=causal, scale=scale)
    return scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)


def main(given: list[str] | None = None) -> None:
    # What `groundspeed run` calls, too. Imported here, since measuring processes need none of it.
    from groundspeed.errors import GroundspeedError
    from groundspeed.evidence import store
    from groundspeed.lab import check, session
    from groundspeed.lab.request import Request
    from groundspeed.report import words

    asked = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    asked.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=("cpu", "cuda"))
    asked.add_argument("--dtype", choices=("fp32", "fp16", "bf16"))
    asked.add_argument("--shape", help=f"as in {ON_A_GPU}")
    asked.add_argument("--preset", default="quick", choices=("quick", "standard", "paper"))
    asked.add_argument("--out", type=Path, default=store.RUNS, help="folder for the bundle")
    told = asked.parse_args(given)
    if told.device == "cuda" and not torch.cuda.is_available():
        asked.error("--device cuda: PyTorch sees no NVIDIA GPU here; --device cpu runs anywhere")
    on_gpu = told.device == "cuda"

    # Several fresh processes, and in each of them blocks in which both are timed once, in random order. The baseline is
    # declared before anything is measured, and so is what is judged against it.
    request = Request(
        "attention",
        told.preset,
        shape=(told.shape or (ON_A_GPU if on_gpu else ON_A_CPU),),
        dtype=(told.dtype or ("bf16" if on_gpu else "fp32"),),
        only=("before", "after"),
        with_files=(__file__,),
        baseline="before",
        judge=("after",),
        device=told.device,
        out=told.out,
    )
    try:
        bundle = session.run(request)
    except GroundspeedError as error:
        asked.exit(error.exit_code, f"{error}\n")

    # Verdicts are recomputed from the samples that lie in the bundle now.
    judgement = check.made(bundle)
    for case in judgement.cases:
        found = case.result("after").comparison
        if found:
            print(f"verdict  {case.facts.name}: {found.verdict}, {words.why(found)}")
            continue
        for name in ("before", "after"):
            if (result := case.result(name)).status != "PASSED":
                print(f"verdict  {case.facts.name}: none, since {name} was {result.status}: {result.reason}")
    for _, sentence in words.claim_lines(judgement):
        print(f"claim    {sentence}")
    print(f"bundle   {bundle.path}")
    print(f"check    groundspeed verify {bundle.path}")


if __name__ == "__main__":
    main()
