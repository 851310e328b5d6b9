"""How the work of a case was spread over its experts, as a worker found it in the inputs."""

from __future__ import annotations

from dataclasses import dataclass

MOST_EXPERTS = 1 << 16
MOST_TOKENS = 1 << 53
"""What a float counts without a gap."""


@dataclass(frozen=True)
class Usage:
    """The same for all inputs of a case but for its balance loss, which is that of the first ones that were made."""

    case: str
    tokens: tuple[int, ...]
    """Of each expert."""
    balance_loss: float
    """Experts · Σ (share of the choices · mean score): 1 where all are alike."""

    def __post_init__(self) -> None:
        if not 0 < len(self.tokens) <= MOST_EXPERTS:
            raise ValueError(f"there is one expert or more, and at most {MOST_EXPERTS:,}")
        if any(not 0 <= tokens <= MOST_TOKENS for tokens in self.tokens) or not 0 < sum(self.tokens) <= MOST_TOKENS:
            raise ValueError("an expert has a number of tokens that none has, or nobody has any")
        if not 0 <= self.balance_loss <= len(self.tokens):  # shares and scores each sum up to 1; NaN is neither
            raise ValueError(f"no balance loss of {len(self.tokens)} experts is {self.balance_loss:g}")
