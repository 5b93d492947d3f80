"""A reader of bundles as docs/reference/bundle-format.md describes them, with nothing of Solera.

It is written with loops, as a reader in another language would be.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

TYPES = {"F32": "<f4", "F64": "<f8", "I32": "<i4", "U16": "<u2", "I8": "i1"}


class PlainReader:
    """A bundle, verified and read."""

    def __init__(self, path: Path) -> None:
        with zipfile.ZipFile(path) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
        text, signed = members["manifest.json"], members["manifest.sig"]
        Ed25519PublicKey.from_public_bytes(signed[:32]).verify(signed[32:], text)
        self.digest = hashlib.sha256(text).hexdigest()
        self.manifest = json.loads(text)
        for name, digest in self.manifest["sha256"].items():
            assert hashlib.sha256(members[name]).hexdigest() == digest
        self.catalogue = json.loads(members["catalogue.json"])
        self.tensors = tensors(members["shared.safetensors"])
        self.n = self.manifest["items"]

    def scores(self, history: list[int]) -> tuple[list[float], list[list[float]]]:
        """Scores of all items; and what every item of the history adds to each, or nothing."""
        second = self.manifest.get("second")
        if second is None:
            return self._scores(self.manifest, history)
        both = self.tensors
        found = []
        for about, prefix in ((self.manifest, ""), (second, "second/")):
            own = [name for name in both if name.startswith("second/") == bool(prefix)]
            self.tensors = {name.removeprefix(prefix): both[name] for name in own}
            scores = np.array(self._scores(about, history)[0])
            found.append((scores - scores.mean()) / max(scores.std(), 1e-12))
        self.tensors = both
        return ((1 - second["weight"]) * found[0] + second["weight"] * found[1]).tolist(), []

    def _scores(self, about: dict[str, Any], history: list[int]) -> tuple[list[float], list[list[float]]]:
        options = about["options"]
        if about["method"] == "fedsasrec":
            return (
                self.tensors["items"].astype(float) @ last_state(self.tensors, options, history)
            ).tolist(), []
        if about["method"] == "fedhist":
            return self._by_vectors(history, options["decays"])
        fedease = about["method"] == "fedease"
        return self._by_weights(history, [options["recency"]] if fedease else options["decays"])

    def _by_weights(self, history: list[int], decays: list[float]) -> tuple[list[float], list[list[float]]]:
        channels = len(decays)
        parts = [[0.0] * self.n for _ in history]
        place = {item: at for at, item in enumerate(history)}
        for item in range(self.n):
            for source, weight in self._column(item, channels):
                at = place.get(source // channels)
                if at is not None:
                    age = len(history) - 1 - at
                    parts[at][item] += weight * decays[source % channels] ** age
        return [sum(each[item] for each in parts) for item in range(self.n)], parts

    def _column(self, item: int, channels: int) -> list[tuple[int, float]]:
        found = self.tensors
        if "levels" in found:
            begin = int(found["counts"][:item].sum())
            places = range(begin, begin + int(found["counts"][item]))
            scale = float(found["scales"][item])
            return [(int(found["sources"][p]), int(found["levels"][p]) * scale) for p in places]
        if "neighbours" in found:
            pairs = zip(found["neighbours"][item], found["weights"][item], strict=True)
            return [(int(source), float(weight)) for source, weight in pairs]
        column = found["weights"][:, item]
        return [
            (i * channels + c, float(column[c * self.n + i])) for c in range(channels) for i in range(self.n)
        ]

    def _by_vectors(self, history: list[int], decays: list[float]) -> tuple[list[float], list[list[float]]]:
        items, inputs = self.tensors["items"].astype(float), self.tensors["inputs"].astype(float)
        size, length = inputs.shape[1], len(history)
        parts = []
        for at, own in enumerate(history):
            memory = np.zeros(size)
            for d in range(size):
                decay = decays[d * len(decays) // size]
                root = sum(decay**age for age in range(length)) ** 0.5
                memory[d] = decay ** (length - 1 - at) * inputs[own, d] / root
            parts.append((items[:, 1:] @ memory).tolist())
        return [float(items[i, 0]) + sum(each[i] for each in parts) for i in range(self.n)], parts


def tensors(content: bytes) -> dict[str, Any]:
    """The tensors of a safetensors file, each of which begins at a multiple of its element's size."""
    (length,) = struct.unpack_from("<Q", content)
    header = json.loads(content[8 : 8 + length])
    found = {}
    for name, about in header.items():
        if name != "__metadata__":
            begin, end = (8 + length + offset for offset in about["data_offsets"])
            dtype = np.dtype(TYPES[about["dtype"]])
            assert begin % dtype.itemsize == 0
            found[name] = np.frombuffer(content[begin:end], dtype).reshape(about["shape"])
    return found


def last_state(tensors: dict[str, Any], options: dict[str, Any], history: list[int]) -> Any:
    """The state of the network of fedsasrec after a history."""
    p = {name: value.astype(float) for name, value in tensors.items()}
    read, d = history[-options["max_length"] :], options["embedding_size"]
    x = p["places"][: len(read) + 1].copy()
    x[1:] += math.sqrt(d) * p["items"][read]
    for layer in range(options["layers"]):
        own = {name.removeprefix(f"block{layer}_"): value for name, value in p.items()}
        x = _hstu(own, options, x) if options["block"] == "hstu" else _attending(own, options, x)
    return _norm(x[-1:], p["norm_scale"], p["norm_shift"])[0]


def _attending(p: dict[str, Any], options: dict[str, Any], x: Any) -> Any:
    normed = _norm(x, p["attention_scale"], p["attention_shift"])
    q, k, v = np.split(normed @ p["attention_in"].T + p["attention_in_bias"], 3, axis=1)
    added = np.zeros_like(x)
    for head in np.split(np.arange(x.shape[1]), options["heads"]):
        for t in range(len(x)):
            weights = np.exp(k[: t + 1, head] @ q[t, head] / math.sqrt(len(head)))
            added[t, head] = weights @ v[: t + 1, head] / weights.sum()
    added = added @ p["attention_out"].T + p["attention_out_bias"]
    ligr = options["block"] == "ligr"
    if ligr:
        added *= _sigmoid(x @ p["attention_gate"].T + p["attention_gate_bias"])
    x = x + added
    normed = _norm(x, p["perceptron_scale"], p["perceptron_shift"])
    if ligr:
        gate, value = np.split(normed @ p["perceptron_in"].T, 2, axis=1)
        added = (gate * _sigmoid(gate) * value) @ p["perceptron_out"].T
        return x + added * _sigmoid(x @ p["perceptron_gate"].T + p["perceptron_gate_bias"])
    wide = normed @ p["perceptron_in"].T + p["perceptron_in_bias"]
    wide *= np.vectorize(lambda z: (1 + math.erf(z / math.sqrt(2))) / 2)(wide)
    return x + wide @ p["perceptron_out"].T + p["perceptron_out_bias"]


def _hstu(p: dict[str, Any], options: dict[str, Any], x: Any) -> Any:
    wide = _norm(x) @ p["in"].T
    gate, v, q, k = np.split(wide * _sigmoid(wide), 4, axis=1)
    mixed = np.zeros_like(x)
    for head in np.split(np.arange(x.shape[1]), options["heads"]):
        for t in range(len(x)):
            weights = k[: t + 1, head] @ q[t, head] + p["distance_bias"][: t + 1][::-1]
            mixed[t, head] = (weights * _sigmoid(weights)) @ v[: t + 1, head] / options["max_length"]
    return x + (_norm(mixed, least=1e-6) * gate) @ p["out"].T + p["out_bias"]


def _norm(x: Any, scale: Any = 1.0, shift: Any = 0.0, least: float = 1e-5) -> Any:
    centred = x - x.mean(1, keepdims=True)
    return centred / np.sqrt(np.square(centred).mean(1, keepdims=True) + least) * scale + shift


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))
