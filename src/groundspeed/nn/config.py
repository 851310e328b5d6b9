"""The configuration of a transformer."""

from __future__ import annotations

from dataclasses import dataclass

from groundspeed.kernels.activations import ACTIVATIONS

NORMS = ("rms", "layer")
POSITIONS = ("rotary", "learned", "none")
LEAST = {
    **dict.fromkeys(
        ("layers", "hidden", "heads", "key_heads", "head_dim", "intermediate", "top_k", "max_positions"), 1
    ),
    "vocabulary": 0,
    "experts": 0,
    "window": -1,
}
"""The least value of each of these fields."""


@dataclass(frozen=True)
class TransformerConfig:
    """The configuration of a `Transformer`. A field that is None is derived from the others."""

    layers: int
    hidden: int
    heads: int
    key_heads: int | None = None
    """Fewer than `heads` if several heads share their keys and values."""
    head_dim: int | None = None
    intermediate: int | None = None
    """4 · `hidden` by default."""
    activation: str = "swiglu"
    norm: str = "rms"
    positions: str = "rotary"
    vocabulary: int = 0
    """0: the model has no embedding, and its inputs and outputs are hidden states."""
    experts: int = 0
    """More than 0: a mixture of this many experts instead of one MLP; each token uses `top_k` of them."""
    top_k: int = 2
    window: int = -1
    """The number of keys before its own position that a query sees; −1 for all."""
    bias: bool = False
    eps: float = 1e-5
    rope_theta: float = 10_000.0
    max_positions: int = 4096

    def __post_init__(self) -> None:
        for name, known in (("norm", NORMS), ("positions", POSITIONS), ("activation", ACTIVATIONS)):
            if getattr(self, name) not in known:
                raise ValueError(f"{name}={getattr(self, name)!r} is unknown; choose from {', '.join(known)}")
        for name, least in LEAST.items():
            number = getattr(self, name)
            if number is not None and (type(number) is not int or number < least):
                raise ValueError(f"{name} must be a whole number of at least {least}, not {number!r:.80}")
        if not self.eps >= 0 or not self.rope_theta > 0:
            raise ValueError(
                f"eps must not be negative and rope_theta must be positive, not {self.eps} and {self.rope_theta}"
            )
        if self.heads % self.shared_by:
            raise ValueError(f"{self.heads} heads are not a multiple of {self.shared_by} key heads")
        if self.head_dim is None and self.hidden % self.heads:
            raise ValueError(f"hidden={self.hidden} is not a multiple of {self.heads} heads: set head_dim=")
        if self.positions == "rotary" and self.columns % 2:
            raise ValueError(f"rotary positions need an even number of columns per head, not {self.columns}")

    @property
    def shared_by(self) -> int:
        """The number of key and value heads."""
        return self.key_heads or self.heads

    @property
    def columns(self) -> int:
        """The number of columns of a head."""
        return self.head_dim or self.hidden // self.heads

    @property
    def inner(self) -> int:
        return self.intermediate or 4 * self.hidden
