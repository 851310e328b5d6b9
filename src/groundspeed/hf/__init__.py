"""groundspeed inside Hugging Face Transformers. Importing this room makes `attn_implementation="groundspeed"` known;
`patch` and `unpatch` are about the other blocks of a model."""

from __future__ import annotations

NEEDS = "groundspeed.hf needs Hugging Face Transformers 5 or newer: pip install 'groundspeed[hf]'"

try:
    import torch  # noqa: F401  first, since Transformers can be imported without it
    import transformers
except ModuleNotFoundError as error:
    if error.name != "transformers":
        raise
    raise ImportError(NEEDS) from error
if int(transformers.__version__.split(".")[0]) < 5:
    raise ImportError(f"{NEEDS} (here it is {transformers.__version__})")

from groundspeed.hf import attention, masks  # noqa: E402  what is missing was said above
from groundspeed.hf.patching import Left, Patched, patch, unpatch  # noqa: E402

NAME = "groundspeed"
"""Of our attention, in `attn_implementation`."""

__all__ = ["NAME", "Left", "Patched", "patch", "register", "unpatch"]


def register() -> None:
    """Make `attn_implementation="groundspeed"` known to Transformers, as importing this room has done already: for
    whoever emptied its registries since."""
    transformers.AttentionInterface.register(NAME, attention.attention)
    transformers.AttentionMaskInterface.register(NAME, masks.mask)


register()
