"""A reader of bundles as docs/reference/bundle-format.md describes them, with nothing of Solera.

It is written with loops, as a reader in another language would be.
"""

from __future__ import annotations

import hashlib
import json
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
        """Scores of all items; and what every item of the history adds to each."""
        options = self.manifest["options"]
        if self.manifest["method"] == "fedhist":
            return self._by_vectors(history, options["decays"])
        fedease = self.manifest["method"] == "fedease"
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
