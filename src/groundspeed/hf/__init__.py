"""groundspeed inside Hugging Face Transformers. Importing this package registers `attn_implementation="groundspeed"`;
`patch` and `unpatch` switch the other blocks of a model to our kernels and back."""

from __future__ import annotations

NEEDS = "groundspeed.hf needs Hugging Face Transformers 5 or newer: pip install 'groundspeed[hf]'"

try:
    import torch  # noqa: F401  imported first because Transformers can be imported without it
    import transformers
except ModuleNotFoundError as error:
    if error.name != "transformers":
        raise
    raise ImportError(NEEDS) from error
if int(transformers.__version__.split(".")[0]) < 5:
    raise ImportError(f"{NEEDS} ({transformers.__version__} is installed)")

from groundspeed.hf import attention, masks  # noqa: E402  missing packages are reported above
from groundspeed.hf.patching import Left, Patched, patch, unpatch  # noqa: E402

NAME = "groundspeed"
"""The name of our attention in `attn_implementation`."""

__all__ = ["NAME", "Left", "Patched", "patch", "register", "unpatch"]


def register() -> None:
    """Register `attn_implementation="groundspeed"` with Transformers. Importing this package does so already; call this
    only if the registries of Transformers were cleared since."""
    transformers.AttentionInterface.register(NAME, attention.attention)
    transformers.AttentionMaskInterface.register(NAME, masks.mask)


register()
