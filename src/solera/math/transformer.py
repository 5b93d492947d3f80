"""Transformers that predict the next item of a history, as functions of a dict of named tensors.

With item vectors E, place vectors P and a history s_1 … s_n, oldest first, at most `max_length` items,

    x_0 = P[0],   x_t = √d · E[s_t] + P[t],   x ← block(x) `layers` times,   h = norm(x)

The state h_t has seen s_1 … s_t and scores item i by ⟨h_t, E_i⟩; h_0 has seen nothing. Padding comes after a
history, where no earlier state sees it. The blocks, with ⊙ for element-wise products:

    sasrec  x ← x + attention(norm(x));              x ← x + gelu(norm(x) A + a) B + b
    ligr    x ← x + σ(x F + f) ⊙ attention(norm(x));  x ← x + σ(x G + g) ⊙ (silu(norm(x) A) ⊙ (norm(x) C)) B
    hstu    U, V, Q, K = silu(norm(x) A);   x ← x + (norm(silu(Q Kᵀ + bias) V / max_length) ⊙ U) B + b

sasrec: Kang & McAuley (ICDM 2018). ligr: Borisyuk et al. (2025), as eSASRec has it (Tikhonovich et al.,
RecSys 2025). hstu: Zhai et al. (ICML 2024); its bias depends on the distance of two places and, with
`intervals`, on the time between them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from pydantic import ValidationInfo
from torch import Tensor
from torch.nn.functional import embedding, gelu, layer_norm, linear, scaled_dot_product_attention, silu

from solera.core.leaf import Home, Init, Leaf, Params

BlockName = Literal["sasrec", "ligr", "hstu"]
SMALL = 833  # fan-in of uniform numbers with a standard deviation of 0.02
BUCKETS = 128  # of time intervals
BUCKET_WIDTH = 0.301  # in natural logarithms of the unit of time, as in HSTU's public code


def divides_width(heads: int, info: ValidationInfo) -> int:
    """Refuse a number of heads that does not divide the settings' embedding_size."""
    size = info.data.get("embedding_size", heads)
    if size % heads:
        raise ValueError(f"{heads} does not divide embedding_size={size}")
    return heads


@dataclass(frozen=True)
class Transformer:
    """The shape of a network. `perceptron` is the width of the perceptron, in multiples of embedding_size."""

    block: BlockName
    embedding_size: int
    layers: int
    heads: int
    max_length: int
    perceptron: int = 4
    intervals: bool = False

    def leaves(self) -> list[Leaf]:
        """All parameters: the item vectors, one row per item, and those of the network."""
        d = self.embedding_size
        found = [
            Leaf("items", (d,), Home.SHARED, Init.LINEAR, per_item=True, upload=True, fan_in=SMALL),
            _leaf("places", self.max_length + 1, d, fan_in=SMALL),
        ]
        for layer in range(self.layers):
            found += self._block_leaves(f"block{layer}_")
        return found + _norm_leaves("norm", d)

    def initial(self, n_items: int, seed: int) -> Params:
        """The initial values, the same as of a federated method with these leaves."""
        return {leaf.name: leaf.initial(n_items, seed).float() for leaf in self.leaves()}

    def _block_leaves(self, name: str) -> list[Leaf]:
        d, wide = self.embedding_size, self.perceptron * self.embedding_size
        if self.block == "hstu":
            biases = [_leaf(name + "distance_bias", self.max_length + 1, fan_in=SMALL)]
            if self.intervals:
                biases.append(_leaf(name + "interval_bias", BUCKETS, fan_in=SMALL))
            return [
                _leaf(name + "in", 4 * d, d, fan_in=d),
                *biases,
                *_linear_leaves(name + "out", d, d),
            ]
        found = [
            *_norm_leaves(name + "attention", d),
            *_linear_leaves(name + "attention_in", d, 3 * d),
            *_linear_leaves(name + "attention_out", d, d),
            *_norm_leaves(name + "perceptron", d),
        ]
        if self.block == "sasrec":
            return [
                *found,
                *_linear_leaves(name + "perceptron_in", d, wide),
                *_linear_leaves(name + "perceptron_out", wide, d),
            ]
        return [
            *found,
            *_linear_leaves(name + "attention_gate", d, d),
            *_linear_leaves(name + "perceptron_gate", d, d),
            _leaf(name + "perceptron_in", 2 * wide, d, fan_in=d),
            _leaf(name + "perceptron_out", d, wide, fan_in=wide),
        ]


class Dropout:
    """Dropout with its own generator, to 1/65536. torch's takes nearly four times as long on a CPU."""

    def __init__(self, rate: float, random: np.random.Generator) -> None:
        self.rate = rate
        self.random = random

    def __call__(self, x: Tensor) -> Tensor:
        """Set a share of the numbers to zero and scale the others up."""
        if not self.rate:
            return x
        kept = self.random.integers(65536, size=x.shape, dtype=np.uint16) >= 65536 * self.rate
        return x * torch.from_numpy(kept) / (1 - self.rate)


def states(
    params: Params,
    network: Transformer,
    items: Tensor,
    *,
    drop: Callable[[Tensor], Tensor] | None = None,
    times: Tensor | None = None,
    asked: Tensor | None = None,
) -> Tensor:
    """States [n, length + 1, d] of items [n, length], padded at the end with any item.

    State t depends only on the first t items. `drop` is used in training alone. A network with `intervals`
    needs the times [n, length + 1] of the places and the times at which each state is asked for; the place
    before the first item has the time of the first item.
    """
    length = items.shape[1]
    places = params["places"][: length + 1]
    read = math.sqrt(network.embedding_size) * embedding(items, params["items"]) + places[1:]
    x = torch.cat([places[:1].expand(items.shape[0], 1, -1), read], 1)
    step = _Step(drop or _unchanged, None)
    if network.intervals:
        assert times is not None, "a network with intervals needs times"
        assert asked is not None, "a network with intervals needs the times of its states"
        step = step._replace(passed=buckets(asked[:, :, None] - times[:, None]))
    x = step.drop(x)
    for layer in range(network.layers):
        x = _block(params, network, f"block{layer}_", x, step)
    return _norm(params, "norm", x)


def buckets(intervals: Tensor) -> Tensor:
    """The row of every time interval in a table of biases: ⌊ln max(|Δ|, 1) / 0.301⌋, at most 127."""
    return (intervals.abs().clamp(min=1).log() / BUCKET_WIDTH).long().clamp(max=BUCKETS - 1)


class _Step(NamedTuple):
    drop: Callable[[Tensor], Tensor]
    passed: Tensor | None  # buckets of time intervals, [n, places, places]


def _block(params: Params, network: Transformer, name: str, x: Tensor, step: _Step) -> Tensor:
    if network.block == "hstu":
        return x + _aggregation(params, network, name, x, step)
    attended = step.drop(_attention(params, network, name, _norm(params, name + "attention", x)))
    if network.block == "ligr":
        attended = attended * torch.sigmoid(_linear(params, name + "attention_gate", x))
    x = x + attended
    inner = _norm(params, name + "perceptron", x)
    if network.block == "sasrec":
        inner = gelu(_linear(params, name + "perceptron_in", inner))
        return x + step.drop(_linear(params, name + "perceptron_out", inner))
    gate, value = linear(inner, params[name + "perceptron_in"]).chunk(2, -1)
    added = step.drop(linear(silu(gate) * value, params[name + "perceptron_out"]))
    return x + added * torch.sigmoid(_linear(params, name + "perceptron_gate", x))


def _attention(params: Params, network: Transformer, name: str, x: Tensor) -> Tensor:
    """Causal attention by softmax, several heads side by side."""
    q, k, v = _heads(_linear(params, name + "attention_in", x), 3, network.heads)
    mixed = scaled_dot_product_attention(q, k, v, is_causal=True)
    return _linear(params, name + "attention_out", mixed.transpose(1, 2).flatten(2))


def _aggregation(params: Params, network: Transformer, name: str, x: Tensor, step: _Step) -> Tensor:
    """HSTU's pointwise attention: weights do not sum to one, so that how much there is can be told."""
    d, length = network.embedding_size, x.shape[1]
    gate, v, q, k = _heads(silu(linear(layer_norm(x, (d,)), params[name + "in"])), 4, network.heads)
    place = torch.arange(length)
    distance = place[:, None] - place
    bias = params[name + "distance_bias"][distance.clamp(min=0)]
    if step.passed is not None:
        bias = bias + embedding(step.passed, params[name + "interval_bias"][:, None]).squeeze(-1)[:, None]
    weights = silu(q @ k.transpose(-1, -2) + bias) * (distance >= 0) / network.max_length
    mixed = (weights @ v).transpose(1, 2).flatten(2)
    gated = layer_norm(mixed, (d,), eps=1e-6) * gate.transpose(1, 2).flatten(2)
    return _linear(params, name + "out", step.drop(gated))


def _heads(x: Tensor, parts: int, heads: int) -> Tensor:
    """[n, places, parts · heads · size] as [parts, n, heads, places, size]."""
    return x.view(*x.shape[:2], parts, heads, -1).permute(2, 0, 3, 1, 4)


def _unchanged(x: Tensor) -> Tensor:
    return x


def _linear(params: Params, name: str, x: Tensor) -> Tensor:
    return linear(x, params[name], params[name + "_bias"])


def _norm(params: Params, name: str, x: Tensor) -> Tensor:
    return layer_norm(x, x.shape[-1:], params[name + "_scale"], params[name + "_shift"])


def _leaf(name: str, *shape: int, init: Init = Init.LINEAR, fan_in: int = 1) -> Leaf:
    return Leaf(name, shape, Home.SHARED, init, upload=True, fan_in=fan_in)


def _linear_leaves(name: str, inward: int, outward: int) -> list[Leaf]:
    return [
        _leaf(name, outward, inward, fan_in=inward),
        _leaf(name + "_bias", outward, init=Init.ZEROS),
    ]


def _norm_leaves(name: str, d: int) -> list[Leaf]:
    return [_leaf(name + "_scale", d, init=Init.ONES), _leaf(name + "_shift", d, init=Init.ZEROS)]
