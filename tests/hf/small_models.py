"""Small models of each family, and batches for them."""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

import torch
import transformers

VOCABULARY, LENGTH, WINDOW = 53, 12, 5
SMALL = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "initializer_range": 0.25,
    "bos_token_id": 1,
    "eos_token_id": None,
    "pad_token_id": 0,
}
LLAMA_3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
SLIDING = {"use_sliding_window": True, "sliding_window": WINDOW, "max_window_layers": 1}
EXPERTS = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 24}

FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {}),
    "llama3": ("Llama", {"rope_parameters": LLAMA_3, "attention_bias": True, "mlp_bias": True}),
    "mistral": ("Mistral", {"sliding_window": WINDOW}),
    "qwen2": ("Qwen2", SLIDING),
    "qwen3": ("Qwen3", {"head_dim": 32}),
    "mixtral": ("Mixtral", {"num_local_experts": 4}),
    "qwen2_moe": ("Qwen2Moe", {**EXPERTS, "shared_expert_intermediate_size": 40, "norm_topk_prob": False}),
    "qwen3_moe": ("Qwen3Moe", {**EXPERTS, "norm_topk_prob": True, "mlp_only_layers": [1]}),
    "gemma2": ("Gemma2", {"head_dim": 16, "sliding_window": WINDOW, "attn_logit_softcapping": 2.0}),
    "gpt_oss": ("GptOss", {"head_dim": 16, "sliding_window": WINDOW, "num_local_experts": 4}),
}
PATCHED = [name for name in FAMILIES if name not in ("gemma2", "gpt_oss")]
"""What `gs.patch` knows."""


@cache
def _made(name: str) -> Any:
    begins, settings = FAMILIES[name]
    torch.manual_seed(0)
    config = getattr(transformers, f"{begins}Config")(**SMALL, **settings)
    model = getattr(transformers, f"{begins}ForCausalLM")(config).eval()
    for parameter in model.parameters():
        if parameter.dim() == 1:  # norms of one and biases of zero hide who forgets them
            parameter.data += 0.2 * torch.randn_like(parameter)
    return model


def made(name: str, attention: str = "sdpa") -> Any:
    model = copy.deepcopy(_made(name))
    model.set_attn_implementation(attention)
    return model


def tokens(rows: int = 3, length: int = LENGTH) -> Any:
    return torch.randint(3, VOCABULARY, (rows, length), generator=torch.Generator().manual_seed(rows * length))


PADDINGS = {
    "none": [(0, LENGTH)] * 3,
    "left": [(3, LENGTH), (0, LENGTH), (8, LENGTH)],
    "right": [(0, LENGTH), (0, 4), (0, 9)],
    "both": [(2, LENGTH), (0, 7), (1, 10)],
}
"""Of each row, where its tokens begin and end."""


def padding(name: str) -> Any:
    mask = torch.zeros(3, LENGTH, dtype=torch.long)
    for row, (begin, end) in enumerate(PADDINGS[name]):
        mask[row, begin:end] = 1
    return mask


def largest(found: Any, expected: Any, kept: Any = None) -> float:
    """Difference, over the size of what is expected, where tokens are no padding."""
    apart = (found - expected).abs()
    if kept is not None:
        apart = apart[kept.bool()]
    return float(apart.max() / expected.abs().max())
