r"""The laboratory against itself: the same function five times, and once more with a planted delay.

    groundspeed run attention --preset quick --with examples/itself.py --baseline again-1 \
        --only again-1,again-2,again-3,again-4,again-5,planted

A function cannot be faster than itself: no verdict on `again-2` to `again-5` against `again-1` may be FASTER or SLOWER.
`planted` does the same work and then computes one row in 32 again, from its own output: it must be SLOWER.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

import groundspeed as gs

PLANTED = 32
"""One row in this many is computed twice. That is about 3% more work, or 6% under a causal mask, which the second
computation does not have; and one more launch, which is most of the delay if the work is short."""


def again(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """PyTorch's attention, whichever backend it takes"""
    return scaled_dot_product_attention(q, k, v, is_causal=causal, scale=scale)


for number in range(1, 6):
    gs.contender("attention", name=f"again-{number}")(again)


@gs.contender("attention", name="planted")
def planted(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float) -> Tensor:
    """The same, and a delay that depends on its result"""
    out = again(q, k, v, causal=causal, scale=scale)
    rows = max(1, q.shape[-2] // PLANTED)
    again(out[..., :rows, :], k, v, causal=False, scale=scale)
    return out
