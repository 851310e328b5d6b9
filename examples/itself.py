"""The laboratory against itself: five times the same, and once the same with a delay that was planted.

    groundspeed run attention --preset quick --with examples/itself.py --baseline again-1 --only again-1

Nobody can be faster than himself: of `again-2` to `again-5` against `again-1`, no verdict may be FASTER or SLOWER.
`planted` does the same work and then, for one row in 32, once more with what came out of it: it must be SLOWER.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

import groundspeed as gs

PLANTED = 32
"""One row of so many is done twice: about 3% more work, or 6% under a causal mask, which the second time has not; and a
launch more, which is most of it where the work is short."""


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
