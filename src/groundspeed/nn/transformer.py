"""A causal transformer built from our kernels: norms that include the residual sum, heads that may share keys, rotary
or learned positions, and an MLP of two or three matrices or a mixture of experts."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from groundspeed.kernels import calls
from groundspeed.kernels.activation.api import activate
from groundspeed.kernels.attention.api import attention
from groundspeed.kernels.moe.dense_api import activated_linear, is_chosen, pays
from groundspeed.kernels.moe.form import widening
from groundspeed.kernels.rotary.api import rotary
from groundspeed.nn import few_rows
from groundspeed.nn.cache import PagedCache
from groundspeed.nn.config import TransformerConfig
from groundspeed.nn.graphs import warming
from groundspeed.nn.moe import MoE
from groundspeed.nn.norm import LayerNorm, RMSNorm

NORMS = {"rms": RMSNorm, "layer": LayerNorm}
PAGE = 64
"""The default number of positions in a page."""


Angles = tuple[Tensor, Tensor] | None
"""Cosines and sines as `groundspeed.rotary` takes them; None without rotary positions."""


class Read(NamedTuple):
    """The tokens that were read before."""

    cache: PagedCache
    nothing: bool
    """Whether there are none: the cache holds only the tokens of this call."""


class SelfAttention(nn.Module):
    """Self-attention in which one product makes queries, keys and values; these parts are used without copies."""

    def __init__(self, config: TransformerConfig, **kind: Any) -> None:
        super().__init__()
        self.config = config
        heads, shared, D = config.heads, config.shared_by, config.columns
        self.qkv = nn.Linear(config.hidden, (heads + 2 * shared) * D, bias=config.bias, **kind)
        self.out = nn.Linear(heads * D, config.hidden, bias=config.bias, **kind)

    def forward(self, x: Tensor, angles: Angles, read: Read | None = None, layer: int = 0) -> Tensor:
        config = self.config
        B, S, _ = x.shape
        q, k, v = self.parts_of(self.qkv(x))
        if angles is not None:
            q, k = rotary(q, k, *angles)
        window = config.window, 0 if config.window >= 0 else -1
        if read is not None:
            read.cache.append(layer, k, v)
        if read is None or read.nothing:
            seen = attention(q, k, v, causal=True, window_size=window)
        else:
            seen = read.cache.attend(layer, q, window_size=window)
        return self.out(seen.transpose(1, 2).reshape(B, S, config.heads * config.columns))

    def parts_of(self, made: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return q, k and v, each [B, heads, S, columns], as views of the output of the first product."""
        config = self.config
        parts = (config.heads, config.shared_by, config.shared_by)
        q, k, v = made.unflatten(2, (sum(parts), config.columns)).transpose(1, 2).split(parts, dim=1)
        return q, k, v


class MLP(nn.Module):
    """hidden → intermediate → hidden; with SwiGLU, the gate is the first half of `up`."""

    def __init__(self, config: TransformerConfig, **kind: Any) -> None:
        super().__init__()
        self.activation = config.activation
        self.wide = widening(config.activation) * config.inner
        self.up = nn.Linear(config.hidden, self.wide, bias=config.bias, **kind)
        self.down = nn.Linear(config.inner, config.hidden, bias=config.bias, **kind)

    def forward(self, x: Tensor) -> Tensor:
        hidden = max(1, x.shape[-1])
        if pays(x.numel() // hidden, self.wide, hidden):  # asked first: it takes the least time
            up = self.up
            if few_rows.is_as_made([(up, (nn.Linear,))]) and is_chosen(x, up.weight, up.bias, self.activation):
                return self.down(activated_linear(x, up.weight, up.bias, self.activation))
        return self.down(activate(self.up(x), self.activation))


class TransformerBlock(nn.Module):
    """Norm, attention, norm, MLP. The residual is passed along separately and added inside the next norm."""

    def __init__(self, config: TransformerConfig, **kind: Any) -> None:
        super().__init__()
        norm = NORMS[config.norm]
        self.before_attention = norm(config.hidden, eps=config.eps, **kind)
        self.attention = SelfAttention(config, **kind)
        self.before_mlp = norm(config.hidden, eps=config.eps, **kind)
        experts = (config.hidden, config.inner, config.experts, config.top_k)
        self.mlp = MoE(*experts, activation=config.activation, **kind) if config.experts else MLP(config, **kind)

    def forward(
        self,
        x: Tensor,
        residual: Tensor | None,
        angles: Angles,
        read: Read | None = None,
        layer: int = 0,
    ) -> tuple[Tensor, Tensor]:
        """Return the output of the MLP, and the residual that it is still to be added to."""
        if residual is None:
            x, residual = self.before_attention(x), x
        else:
            x, residual = self.before_attention(x, residual)
        x, residual = self.before_mlp(self.attention(x, angles, read, layer), residual)
        return self.mlp(x), residual


class Transformer(nn.Module):
    """A causal transformer. `forward` maps tokens [B, S] to logits or, without a vocabulary, hidden states [B, S,
    hidden] to hidden states after the last norm. With a `PagedCache`, x are the last S tokens of its rows, for which it
    must already have room (`allocate`, `grow`); they also see the tokens that were read before."""

    def __init__(self, config: TransformerConfig, *, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        if not isinstance(config, TransformerConfig):
            given = type(config).__name__
            raise TypeError(f"config must be a gs.nn.TransformerConfig(layers=…, hidden=…, …), not {given}")
        self.config = config
        kind = {"device": device, "dtype": dtype}
        if config.vocabulary:
            self.embedding = nn.Embedding(config.vocabulary, config.hidden, **kind)
            self.head = nn.Linear(config.hidden, config.vocabulary, bias=False, **kind)
        if config.positions == "learned":
            self.places = nn.Embedding(config.max_positions, config.hidden, **kind)
        self.blocks = nn.ModuleList(TransformerBlock(config, **kind) for _ in range(config.layers))
        self.norm = NORMS[config.norm](config.hidden, eps=config.eps, **kind)
        self._angles: Tensor | None = None
        """Cosines and sines of rotary positions, on the device of the weights. Not a buffer, so converting the model
        to 16 bits leaves them in FP32. Not made in `forward`, where a compiler's CUDA graph would own their memory."""
        self._make_angles(self.norm.weight.device)
        self.register_load_state_dict_post_hook(_follow)

    def _make_angles(self, device: torch.device) -> None:
        if self.config.positions == "rotary" and (self._angles is None or self._angles.device != device):
            with torch.inference_mode(False):  # inference tensors could not be used in training
                self._angles = _angles(self.config).to(device)

    def _apply(self, *given: Any, **told: Any) -> Transformer:
        super()._apply(*given, **told)
        self._make_angles(self.norm.weight.device)
        return self

    def forward(self, x: Tensor, cache: PagedCache | None = None, *, last_only: bool = False) -> Tensor:
        """Return logits or hidden states for x, or with `last_only` for the last token of each sequence."""
        self._check(x, cache)
        S = x.shape[1]
        positions = None if cache is None or self.config.positions == "none" else _last(cache.lengths, S)
        if self.config.vocabulary:
            x = self.embedding(x)
        if self.config.positions == "learned":
            x = x + (self.places.weight[:S] if positions is None else self.places(positions))
        angles = self._angles_at(x, positions)
        read = None if cache is None else Read(cache, _is_all(cache, x))
        residual: Any = None
        for layer, block in enumerate(self.blocks):
            if few_rows.serve(block, x, cache):
                total = x if residual is None else x + residual
                x, residual = few_rows.through(block, total, angles, cache, layer), None
            else:
                x, residual = block(x, residual, angles, read, layer)
        if last_only:
            x, residual = x[:, -1:], None if residual is None else residual[:, -1:]
        x = self.norm(x) if residual is None else self.norm(x, residual)[0]
        return self.head(x) if self.config.vocabulary else x

    def _check(self, x: Tensor, cache: PagedCache | None) -> None:
        config = self.config
        if config.vocabulary and (x.dim() != 2 or x.is_floating_point()):
            raise ValueError(f"x must be tokens, whole numbers [B, S], not {list(x.shape)} in {x.dtype}")
        if not config.vocabulary and (x.dim() != 3 or x.shape[2] != config.hidden or not x.is_floating_point()):
            told = f"hidden states [B, S, {config.hidden}], since the model has no vocabulary="
            raise ValueError(f"x must be {told}, not {list(x.shape)} in {x.dtype}")
        if torch.is_autocast_enabled(x.device.type):
            raise RuntimeError(
                "a Transformer computes in the dtype of its weights: convert it, for example with .bfloat16(), instead "
                "of using autocast"
            )
        most = x.shape[1] if cache is None else cache.longest
        if self.config.max_positions < most and self.config.positions != "none":
            what = "tokens" if cache is None else "positions of the cache (its longest=)"
            raise ValueError(f"{most} {what} exceed max_positions={self.config.max_positions}")
        if cache is None:
            return
        if len(cache.k_pages) != config.layers:
            raise ValueError(f"the cache is for {len(cache.k_pages)} layers, but the model has {config.layers}")
        pages, weight = cache.k_pages[0], self.blocks[0].attention.qkv.weight
        kinds = [(pages.shape[1], pages.shape[3], pages.dtype, pages.device)]
        kinds.append((config.shared_by, config.columns, weight.dtype, weight.device))
        if kinds[0] != kinds[1]:
            both = ["{} key heads of {} in {} on {}".format(*kind) for kind in kinds]
            raise ValueError(f"the cache has {both[0]}, but the model {both[1]}: use model.cache(sequences, longest)")
        if not cache.rows:
            raise ValueError("no row of the cache has a sequence: call cache.allocate([…]) first")
        if x.shape[1] > (most := max(cache.tokens)):
            way = "call cache.allocate or cache.grow first"
            raise ValueError(f"{x.shape[1]} tokens are given, but no row of the cache has more than {most}: {way}")
        if len(x) != len(cache.lengths):
            raise ValueError(f"x must have a row for each of the {len(cache.lengths)} rows of the cache, not {len(x)}")

    def cache(self, sequences: int, longest: int, *, pages: int | None = None, page_size: int = PAGE) -> PagedCache:
        """Return a `PagedCache` for this model, in the dtype and on the device of its weights. By default it has enough
        pages for all sequences to be `longest`; `pages` sets another number, which the sequences share."""
        weight, config = self.blocks[0].attention.qkv.weight, self.config
        return PagedCache(
            config.layers,
            config.shared_by,
            config.columns,
            pages=pages or sequences * -(-longest // page_size),
            sequences=sequences,
            longest=longest,
            page_size=page_size,
            device=weight.device,
            dtype=weight.dtype,
        )

    @torch.no_grad()
    def generate(self, tokens: Tensor, steps: int) -> Tensor:
        """Return the `steps` tokens [B, steps] that follow `tokens` [B, S], taking the most likely token each time."""
        config = self.config
        if not config.vocabulary:
            raise ValueError("a model without a vocabulary cannot generate tokens: set vocabulary=")
        if tokens.dim() != 2 or 0 in tokens.shape or type(steps) is not int or steps < 0:
            raise ValueError(
                f"tokens must be [B, S], at least one, and steps at least 0, not {list(tokens.shape)} and {steps!r:.80}"
            )
        B, S = tokens.shape
        if config.max_positions < S + steps and config.positions != "none":
            raise ValueError(f"{S} + {steps} tokens exceed max_positions={config.max_positions}")
        cache = self.cache(B, S + steps)
        cache.allocate([S] * B)
        found = [tokens]
        for _ in range(steps):
            found.append(self(found[-1], cache, last_only=True).argmax(-1))
            cache.grow(1)
        return torch.cat(found[1:], dim=1) if steps else tokens[:, :0]

    def _angles_at(self, x: Tensor, positions: Tensor | None) -> Angles:
        """Return cosines and sines for `rotary` at these positions, or at the first S positions if None."""
        if self.config.positions != "rotary":
            return None
        self._make_angles(x.device)  # for weights that were replaced one by one
        assert self._angles is not None, "positions are rotary"
        if positions is None:
            cos, sin = self._angles[:, None, : x.shape[1]]
        else:
            cos, sin = self._angles[:, positions]
        return cos, sin


def _follow(model: Transformer, _: Any) -> None:
    """Bring the angles to where `load_state_dict(assign=True)` has brought the weights."""
    model._make_angles(model.norm.weight.device)


def _is_all(cache: PagedCache, x: Tensor) -> bool:
    """Whether every row of the cache holds only the tokens of this call, of which there is more than one. Always False
    during a CUDA graph capture, because the graph is also replayed when rows hold more, and in the warm-up of
    `compile_graphs`, which has to compile the kernels that its capture launches. False under a compiler too, which
    cannot trace these questions and would compile again for each length."""
    if x.shape[1] <= 1 or torch.compiler.is_compiling() or warming.is_inside() or calls.is_captured(x):
        return False
    return all(length == x.shape[1] for length in cache.tokens)


def _last(lengths: Tensor, tokens: int) -> Tensor:
    """Return the positions [B, tokens] of the last tokens of each row; padding before a row's first token has 0."""
    return (lengths[:, None] - tokens + torch.arange(tokens, device=lengths.device)).clamp(min=0)


def _angles(config: TransformerConfig) -> Tensor:
    """Return the cosines and sines of every position, FP32 [2, positions, columns / 2]."""
    kind: Any = {"dtype": torch.float64, "device": "cpu"}  # whatever the default device
    turns = config.rope_theta ** -(torch.arange(0, config.columns, 2, **kind) / config.columns)
    angles = torch.arange(config.max_positions, **kind)[:, None] * turns
    return torch.stack([angles.cos(), angles.sin()]).float()
