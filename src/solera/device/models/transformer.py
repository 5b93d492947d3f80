"""`fedsasrec`: score items by the state of a transformer after the history (`math.transformer`).

    x_0 = P[0],   x_t = √d · E[s_t] + P[t],   x ← block(x) for every layer,   h = norm(x) at the last place
    score(j) = ⟨h, E[j]⟩

A place attends to itself and to earlier places. Only the last place of the last layer is needed, so no other
is computed there. Activations are rows in double precision.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from solera.core.types import Floats, Ints
from solera.device.models.options import SASRecOptions
from solera.device.models.served import Served, Tensors, cosines

_PERCEPTRON = 4  # width of the perceptron, in multiples of the network's
_ERF = np.vectorize(math.erf, otypes=[np.float64])

Rows = Callable[[Floats], Floats]
Block = Callable[[Floats, int], Floats]  # rows, and the first that the next layer needs


class TransformerHistory(Served):
    """Scores by the state of a network."""

    def __init__(self, method: str, options: SASRecOptions, tensors: Tensors, n_items: int) -> None:
        super().__init__(method, n_items)
        made = _Network(tensors, options)
        self.items = tensors.take("items", n_items, made.width)
        self.places = made.take("places", made.max_length + 1, made.width)
        self.max_length = made.max_length
        kind = {"sasrec": made.sasrec, "ligr": made.ligr, "hstu": made.hstu}[options.block]
        self.blocks = [kind(f"block{layer}_") for layer in range(options.layers)]
        self.norm = made.norm("norm")

    def scores(self, history: Ints, days: Floats | None = None, asked: float | None = None) -> Floats:
        read = history[-self.max_length :]
        x = self.places[: len(read) + 1].copy()
        x[1:] += math.sqrt(x.shape[1]) * self.items[read]
        for layer, block in enumerate(self.blocks):
            x = block(x, len(read) if layer == len(self.blocks) - 1 else 0)
        found: Floats = (self.items @ self.norm(x)[-1].astype(self.items.dtype)).astype(np.float64)
        return found

    def similarity(self, row: int) -> Floats:
        return cosines(self.items, row)


class _Network:
    """What blocks are made of. ⊙ multiplies number by number."""

    def __init__(self, tensors: Tensors, options: SASRecOptions) -> None:
        self._tensors = tensors
        self.width, self.heads = options.embedding_size, options.heads
        self.max_length = options.max_length

    def take(self, name: str, *shape: int) -> Floats:
        """A tensor in double precision."""
        return self._tensors.take(name, *shape).astype(np.float64)

    def norm(self, name: str) -> Rows:
        """Rows with mean 0 and variance 1, then scaled and shifted."""
        scale, shift = (self.take(f"{name}_{end}", self.width) for end in ("scale", "shift"))
        return lambda x: _normed(x, 1e-5) * scale + shift

    def linear(self, name: str, inward: int, outward: int) -> Rows:
        """x Wᵀ + b."""
        weights, bias = self.take(name, outward, inward), self.take(f"{name}_bias", outward)
        return lambda x: x @ weights.T + bias

    def sasrec(self, name: str) -> Block:
        """x ← x + attention(norm(x));   x ← x + gelu(norm(x) A + a) B + b"""
        wide = _PERCEPTRON * self.width
        attend, before = self._attention(name), self.norm(f"{name}perceptron")
        inward = self.linear(f"{name}perceptron_in", self.width, wide)
        outward = self.linear(f"{name}perceptron_out", wide, self.width)

        def block(x: Floats, first: int) -> Floats:
            after = x[first:] + attend(x, first)
            return after + outward(_gelu(inward(before(after))))

        return block

    def ligr(self, name: str) -> Block:
        """x ← x + σ(x F + f) ⊙ attention(norm(x));  x ← x + σ(x G + g) ⊙ (silu(norm(x) A) ⊙ (norm(x) C)) B"""
        wide = _PERCEPTRON * self.width
        attend, before = self._attention(name), self.norm(f"{name}perceptron")
        attention_gate = self.linear(f"{name}attention_gate", self.width, self.width)
        perceptron_gate = self.linear(f"{name}perceptron_gate", self.width, self.width)
        inward = self.take(f"{name}perceptron_in", 2 * wide, self.width)
        outward = self.take(f"{name}perceptron_out", self.width, wide)

        def block(x: Floats, first: int) -> Floats:
            after = x[first:] + _sigmoid(attention_gate(x[first:])) * attend(x, first)
            gate, value = np.split(before(after) @ inward.T, 2, axis=-1)
            return after + _sigmoid(perceptron_gate(after)) * ((gate * _sigmoid(gate) * value) @ outward.T)

        return block

    def hstu(self, name: str) -> Block:
        """U, V, Q, K = silu(norm(x) A);   x ← x + (norm(silu(Q Kᵀ + bias) V / max_length) ⊙ U) B + b"""
        inward = self.take(f"{name}in", 4 * self.width, self.width)
        bias = self.take(f"{name}distance_bias", self.max_length + 1)
        outward = self.linear(f"{name}out", self.width, self.width)

        def weigh(dots: Floats, distance: NDArray[Any]) -> Floats:
            dots = dots + bias[np.maximum(distance, 0)]
            found: Floats = dots * _sigmoid(dots) * (distance >= 0) / self.max_length
            return found

        def block(x: Floats, first: int) -> Floats:
            made = _normed(x, 1e-5) @ inward.T
            gate, v, q, k = np.split(made * _sigmoid(made), 4, axis=-1)
            mixed = self._mixed(q[first:], k, v, weigh)
            return x[first:] + outward(_normed(mixed, 1e-6) * gate[first:])

        return block

    def _attention(self, name: str) -> Block:
        """Causal attention by softmax to the normed rows."""
        before = self.norm(f"{name}attention")
        inward = self.linear(f"{name}attention_in", self.width, 3 * self.width)
        outward = self.linear(f"{name}attention_out", self.width, self.width)
        scale = 1 / math.sqrt(self.width / self.heads)

        def weigh(dots: Floats, distance: NDArray[Any]) -> Floats:
            dots = np.where(distance >= 0, dots * scale, -np.inf)
            weights = np.exp(dots - dots.max(-1, keepdims=True))
            found: Floats = weights / weights.sum(-1, keepdims=True)
            return found

        def attend(x: Floats, first: int) -> Floats:
            q, k, v = np.split(inward(before(x)), 3, axis=-1)
            return outward(self._mixed(q[first:], k, v, weigh))

        return attend

    def _mixed(
        self, q: Floats, k: Floats, v: Floats, weigh: Callable[[Floats, NDArray[Any]], Floats]
    ) -> Floats:
        """Weighted sums of the values, head by head. The queries are those of the last places."""
        q, k, v = (each.reshape(len(each), self.heads, -1).transpose(1, 0, 2) for each in (q, k, v))
        places = np.arange(k.shape[1])
        weights = weigh(q @ k.transpose(0, 2, 1), places[-q.shape[1] :, None] - places)
        return (weights @ v).transpose(1, 0, 2).reshape(q.shape[1], -1)


def _normed(x: Floats, least: float) -> Floats:
    """Rows with mean 0 and variance 1; `least` is added to the variance."""
    centred = x - x.mean(-1, keepdims=True)
    found: Floats = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + least)
    return found


def _sigmoid(x: Floats) -> Floats:
    found: Floats = 0.5 * (1 + np.tanh(0.5 * x))
    return found


def _gelu(x: Floats) -> Floats:
    """x · P(X ≤ x) for a standard normal X."""
    found: Floats = 0.5 * x * (1 + _ERF(x * math.sqrt(0.5)))
    return found
