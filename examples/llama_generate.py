"""Let a small Llama of Transformers with random weights write some words, as it is and with groundspeed in it.

    pip install 'groundspeed[hf]'
    python examples/llama_generate.py
    python examples/llama_generate.py --device cuda --dtype bfloat16 --hidden 2048 --layers 16

Two prompts of different lengths are padded on the left, as a server would pad them. On a CPU every call takes PyTorch's
path, which is reported once; on an NVIDIA GPU our kernels serve. In 16 bits the two round in different places. With
random weights all words are about equally likely, so the two may write different words.
"""

from __future__ import annotations

import argparse

import torch

import groundspeed as gs

try:
    import groundspeed.hf  # makes attn_implementation="groundspeed" known
except ImportError as error:  # one sentence: pip install 'groundspeed[hf]'
    raise SystemExit(str(error)) from None

from transformers import LlamaConfig, LlamaForCausalLM

WORDS = 1000


def written(model: LlamaForCausalLM, prompts: torch.Tensor, mask: torch.Tensor, count: int) -> torch.Tensor:
    made = model.generate(prompts, attention_mask=mask, max_new_tokens=count, do_sample=False)
    return made[:, prompts.shape[1] :]


def main(given: list[str] | None = None) -> None:
    asked = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    asked.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=("cpu", "cuda"))
    asked.add_argument("--dtype", default="float32", choices=("float32", "float16", "bfloat16"))
    asked.add_argument("--hidden", type=int, default=256)
    asked.add_argument("--layers", type=int, default=4)
    asked.add_argument("--words", type=int, default=12)
    told = asked.parse_args(given)
    if told.hidden < 64 or told.hidden % 64:
        asked.error("--hidden is a multiple of 64: a head has 32, and two share their keys")
    if min(told.layers, told.words) < 1:
        asked.error("--layers and --words are 1 or more")
    if told.device == "cuda" and not torch.cuda.is_available():
        asked.error("--device cuda: PyTorch sees no NVIDIA GPU here; --device cpu runs anywhere")

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=WORDS,
        hidden_size=told.hidden,
        intermediate_size=2 * told.hidden,
        num_hidden_layers=told.layers,
        num_attention_heads=told.hidden // 32,
        num_key_value_heads=told.hidden // 64,
        initializer_range=0.1,
        eos_token_id=None,
        pad_token_id=0,
    )
    model = LlamaForCausalLM(config).to(told.device, getattr(torch, told.dtype)).eval()
    prompts = torch.randint(1, WORDS, (2, 32), device=told.device)
    mask = torch.ones_like(prompts)
    mask[1, :20] = 0  # the second prompt has twelve words
    before = written(model, prompts, mask, told.words)

    model.set_attn_implementation("groundspeed")  # or from_pretrained(..., attn_implementation="groundspeed")
    print(gs.patch(model))
    after = written(model, prompts, mask, told.words)

    for name, words in (("sdpa", before), ("groundspeed", after)):
        for row in words.tolist():
            print(f"{name:<12}", *(f"{word:>3}" for word in row))
    print(f"{int((before == after).sum())} of {before.numel()} words are the same")
    gs.unpatch(model)


if __name__ == "__main__":
    main()
