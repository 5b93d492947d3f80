"""The model of a bundle, with what a federation has shared since, and with the user's own parameters.

A blend of two models scores (1 − w) · a + w · b, where a and b are their scores, standardised over all items.
Such a score is no sum over the history, so it has no parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load

from solera.core.errors import BundleError, missing_package
from solera.core.randomness import Purpose, generator
from solera.core.types import Floats, Ints
from solera.device.bundle import SECOND, TENSORS, Bundle, ModelEntry
from solera.device.models.linear import FadingHistory, closed_form
from solera.device.models.options import (
    PLUGINS,
    EaseOptions,
    HistOptions,
    Options,
    SASRecOptions,
    SlistOptions,
)
from solera.device.models.served import AGAIN, Served, Tensors, Untrained
from solera.device.models.transformer import TransformerHistory
from solera.device.tensors import Arrays

_LEAST = 1e-12  # standard deviation, so that equal scores become 0


class Blend(Served):
    """Two models that score together."""

    def __init__(self, first: Served, second: Served, weight: float) -> None:
        super().__init__(first.method, first.n_items)
        self.first, self.second, self.weight = first, second, weight

    def scores(self, history: Ints, days: Floats | None = None, asked: float | None = None) -> Floats:
        return self._mixed(self.first.scores(history, days, asked), self.second.scores(history))

    def similarity(self, row: int) -> Floats:
        return self._mixed(self.first.similarity(row), self.second.similarity(row))

    def _mixed(self, first: Floats, second: Floats) -> Floats:
        return (1 - self.weight) * _standardised(first) + self.weight * _standardised(second)


def _standardised(scores: Floats) -> Floats:
    found: Floats = (scores - scores.mean()) / max(float(scores.std()), _LEAST)
    return found


OPTIONS: Mapping[str, type[Options]] = {
    "fedease": EaseOptions,
    "fedhist": HistOptions,
    "fedsasrec": SASRecOptions,
    "fedslist": SlistOptions,
}


def open_model(bundle: Bundle, shared: Arrays | None = None, personal: Arrays | None = None) -> Served:
    """What a user is served with; `shared` tensors of a federation take the place of the bundle's.

    Everything of the model is checked.
    """
    manifest = bundle.manifest
    if any(each.method not in OPTIONS or set(each.plugins) - PLUGINS for each in manifest.models):
        return _trained_here(bundle, shared, personal)
    found = shared or _tensors(bundle)
    first, options = manifest, _options(bundle, manifest)
    if not found and not manifest.trained:
        return Untrained(first.method, manifest.items)
    if manifest.second is None:
        if shared:
            found = _grown(shared, first, options, manifest.items)
        return _single(bundle, first, options, found)
    of_second = {name.removeprefix(SECOND): each for name, each in found.items() if name.startswith(SECOND)}
    of_first = {name: each for name, each in found.items() if not name.startswith(SECOND)}
    second = _single(bundle, manifest.second, _options(bundle, manifest.second), of_second)
    return Blend(_single(bundle, first, options, of_first), second, manifest.second.weight)


def _trained_here(bundle: Bundle, shared: Arrays | None, personal: Arrays | None) -> Served:
    """A model whose users have parameters of their own, which are trained on the device."""
    try:
        from solera.device.model import TrainedHere  # noqa: PLC0415 - brings torch, which nothing else here needs
    except ModuleNotFoundError as error:
        known = missing_package(error)
        if known is None:
            raise
        message = f"a model of {bundle.manifest.full_method!r} learns on the device: {known.message}"
        raise BundleError(message, known.hint) from None
    return TrainedHere(bundle, shared, personal)


def _tensors(bundle: Bundle) -> dict[str, NDArray[Any]]:
    try:
        return dict(load(bundle.read(TENSORS)))
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise BundleError(f"{bundle.path}: {TENSORS} cannot be read: {error}", AGAIN) from None


def _options(bundle: Bundle, about: ModelEntry) -> Options:
    try:
        return OPTIONS[about.method].read(about.options)
    except (ValueError, OverflowError) as wrong:
        message = f"{bundle.path}: this version of Solera does not support its method: {wrong}"
        raise BundleError(message, "pip install --upgrade solera") from None


def _single(bundle: Bundle, about: ModelEntry, options: Options, found: Mapping[str, NDArray[Any]]) -> Served:
    n_items = bundle.manifest.items
    tensors = Tensors(bundle.path, found, np.float64 if about.precision == "double" else np.float32)
    made: Served
    match options:
        case HistOptions():
            made = FadingHistory(about.method, options, tensors, n_items)
        case SASRecOptions():
            made = TransformerHistory(about.method, options, tensors, n_items)
        case EaseOptions() | SlistOptions():
            made = closed_form(about.method, options, tensors, n_items)
    tensors.end()
    return made


def _grown(shared: Arrays, about: ModelEntry, options: Options, n_items: int) -> Arrays:
    """Item vectors of a federation, whose catalogue may be older: new items are as training starts them."""
    starts: dict[str, int] = {}  # the reciprocal square of the bound of a row's numbers; 0: zeros
    if isinstance(options, HistOptions):
        starts = {"items": 0, "inputs": options.embedding_size}
    elif isinstance(options, SASRecOptions):
        starts = {"items": 833}
    grown = dict(shared)
    for name, fan_in in starts.items():
        if name in shared and len(shared[name]) < n_items:
            held, shape = shared[name], (n_items, *shared[name].shape[1:])
            bound = fan_in**-0.5 if fan_in else 0.0
            rows = generator(about.seed, Purpose.INIT, *name.encode()).uniform(-bound, bound, shape)
            grown[name] = np.concatenate([held, rows[len(held) :].astype(held.dtype)])
    return grown
