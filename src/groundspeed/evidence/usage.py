"""How the work of a case was spread over its experts, as a worker computed it from the inputs."""

from __future__ import annotations

from dataclasses import dataclass

MOST_EXPERTS = 1 << 16
MOST_TOKENS = 1 << 53
"""The number up to which a float represents every integer."""


@dataclass(frozen=True)
class Usage:
    """Usage of the experts of a case. The token counts are the same for all inputs of the case; the balance loss is
    that of the first inputs that were made."""

    case: str
    tokens: tuple[int, ...]
    """Tokens of each expert."""
    balance_loss: float
    """Experts · Σ (share of the choices · mean score): 1 if all experts are alike."""

    def __post_init__(self) -> None:
        if not 0 < len(self.tokens) <= MOST_EXPERTS:
            raise ValueError(f"a layer has 1 to {MOST_EXPERTS:,} experts")
        if any(not 0 <= tokens <= MOST_TOKENS for tokens in self.tokens) or not 0 < sum(self.tokens) <= MOST_TOKENS:
            raise ValueError("the number of tokens of an expert is impossible, or none has any")
        if not 0 <= self.balance_loss <= len(self.tokens):  # shares and scores each sum to 1; NaN is refused
            raise ValueError(f"{self.balance_loss:g} is not a balance loss of {len(self.tokens)} experts")
