"""The model of a bundle as a federation trains it, in torch. What needs no training is in `device.models`.

Compact weights of one-round methods are the largest ones, in 8 bits.
"""

from __future__ import annotations

import math
from collections import deque

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor

from solera.core.closed_form import NEIGHBOURS, WEIGHTS, AnyMethod, ClosedForm
from solera.core.errors import BundleError, ConfigError
from solera.core.leaf import Home, Params
from solera.core.types import Floats, Ints
from solera.data.ragged import Ragged
from solera.device.bundle import (
    COMPACT_FORMAT,
    FORMAT,
    TENSORS,
    Bundle,
)
from solera.device.models.served import Served, not_trained
from solera.device.tensors import Arrays
from solera.engine import OneRound, Simulation
from solera.engine.server import derived
from solera.engine.serving import newcomer
from solera.math.sparse_ridge import COMPACT, COUNTS, LEVELS, SCALES, SOURCES, Neighbours, resized
from solera.methods import find


class Model:
    """A bundle's method, and the parameters that a user is served with.

    Those that a federation has `shared` with the user take the place of the bundle's; `personal` are the
    user's own.
    """

    def __init__(self, bundle: Bundle, shared: Arrays | None = None, personal: Arrays | None = None) -> None:
        manifest = bundle.manifest
        self.method = method_of(bundle)
        self.n_items, self.seed = manifest.items, manifest.seed
        self.dtype = torch.float64 if manifest.precision == "double" else torch.float32
        self.shared = self._grown(shared) if shared else self._checked(bundle)
        self._personal = {name: torch.from_numpy(value.copy()) for name, value in (personal or {}).items()}

    def _grown(self, shared: Arrays) -> Params:
        """Tensors of a federation, whose catalogue may be older: new items are as at the start."""
        tensors = {name: torch.from_numpy(value.copy()) for name, value in shared.items()}
        if self.method.one_round:
            channels = self.method.scorer.channels
            if self.method.neighbours:
                _check_sources(tensors, channels)
                return resized(tensors, self.n_items, channels)
            return {WEIGHTS: _grown_square(tensors[WEIGHTS], channels, self.n_items)}
        for leaf in self.method.select(home=Home.SHARED, per_item=True):
            if leaf.name in tensors:
                rest = leaf.initial(self.n_items, self.seed).to(self.dtype)[len(tensors[leaf.name]) :]
                tensors[leaf.name] = torch.cat([tensors[leaf.name], rest])
        return tensors | derived(self.method, tensors)

    def _checked(self, bundle: Bundle) -> Params:
        """The tensors, of the declared names, shapes and type, and finite; none where nothing is trained."""
        again = "ask the publisher for a new bundle"
        try:
            tensors: Params = load(bundle.read(TENSORS))
        except (SafetensorError, ValueError) as error:
            raise BundleError(f"{bundle.path}: {TENSORS} cannot be read: {error}", again) from None
        if not tensors and not bundle.manifest.trained:
            return {}
        version = bundle.manifest.format
        compact = version == COMPACT_FORMAT or (version != FORMAT and LEVELS in tensors)
        if self.method.one_round and compact:
            check_compact(bundle, tensors, self.n_items)
            _check_sources(tensors, self.method.scorer.channels)
            return tensors
        wanted = self.method.shared_shapes(self.n_items)
        found = {name: tuple(value.shape) for name, value in tensors.items()}
        if found != wanted:
            message = f"{bundle.path} has the tensors {found}, but {self.method.name!r} declares {wanted}"
            raise BundleError(message, again)
        for name, value in tensors.items():
            dtype = torch.int32 if name == NEIGHBOURS else self.dtype
            if value.dtype != dtype or not bool(torch.isfinite(value).all()):
                raise BundleError(f"{bundle.path}: {name!r} is not all finite {dtype} numbers", again)
        if self.method.one_round and self.method.neighbours:
            _check_sources(tensors, self.method.scorer.channels)
        return tensors

    def scores(self, history: Ints, days: Floats | None = None, asked: float | None = None) -> Tensor:
        """Of all items for a user of that history, oldest first: what the simulator would give.

        A user who needs parameters of its own and has none yet trains them here and now, alone. `days` are
        those of the history, `asked` is that of the request.
        """
        if not self.shared:
            raise not_trained(self.method.name)
        me = np.array([0])
        alone, known = self._alone(history, days, asked)
        if isinstance(alone, Simulation):
            if self._personal:
                alone.state.personal.take_client(0, self._personal)
            elif not self.method.serves_from_history:
                deque(alone.train_clients(0, me), maxlen=0)
        return alone.serve(known)(me)[0]

    def _alone(
        self, history: Ints, days: Floats | None, asked: float | None
    ) -> tuple[Simulation | OneRound, Ragged]:
        """A federation of this user. The time of the request is for models that were trained to read it."""
        reads = self.method.one_round and self.method.reads_request_time
        return newcomer(
            self.method,
            self.shared,
            history,
            self.n_items,
            seed=self.seed,
            dtype=self.dtype,
            days=days,
            asked=asked if reads else None,
        )


class TrainedHere(Served):
    """A model with parameters of each user's own. Who has none yet trains them here and now, alone."""

    serves_from_history = False

    def __init__(self, bundle: Bundle, shared: Arrays | None, personal: Arrays | None) -> None:
        super().__init__(bundle.manifest.full_method, bundle.manifest.items)
        self._model = Model(bundle, shared, personal)

    def scores(self, history: Ints, days: Floats | None = None, asked: float | None = None) -> Floats:
        """What the simulator would give."""
        found: Floats = self._model.scores(history, days, asked).double().numpy()
        return found

    def similarity(self, row: int) -> Floats:
        """Items are not compared."""
        return np.zeros(self.n_items)


def method_of(bundle: Bundle) -> AnyMethod:
    """A bundle's method with its options, for a federation to train."""
    if bundle.manifest.second:
        raise BundleError(
            f"{bundle.path} blends two models, which a federation does not train",
            "train each of them, and blend the runs",
        )
    about = bundle.manifest
    try:
        return find(about.method, about.options, about.plugins)
    except ConfigError as error:
        message = f"{bundle.path}: this version of Solera does not support its method: {error.message}"
        raise BundleError(message, "pip install --upgrade solera") from None


def _check_sources(tensors: Params, channels: int) -> None:
    """Refuse weights from items that do not exist."""
    try:
        Neighbours.of(tensors, channels)
    except ValueError as error:
        raise BundleError(f"the model has {error}", "ask the publisher for a new one") from None


def _grown_square(weights: Tensor, channels: int, n_items: int) -> Tensor:
    """A solved matrix for more items: nothing is known of what new ones go with."""
    held = weights.shape[1]
    grown = weights.new_zeros(channels, n_items, n_items)
    grown[:, :held, :held] = weights.view(channels, held, held)
    return grown.view(-1, n_items)


_KEPT = 6  # weights per item on average, times the square root of the number of sources,
_LEAST = 300  # and at least this many

_KINDS = {
    COUNTS: (torch.int32,),
    SCALES: (torch.float32,),
    SOURCES: (torch.uint16, torch.int32),
    LEVELS: (torch.int8,),
}


def compacted(method: ClosedForm, tensors: Params, n_items: int) -> Params:
    """The compact form of a solved model."""
    channels = method.scorer.channels
    each = max(_LEAST, math.ceil(_KEPT * math.sqrt(channels * n_items)))
    found = Neighbours.of(tensors, channels) or Neighbours.largest(tensors[WEIGHTS], channels, each)
    return found.compact(each)


def check_compact(bundle: Bundle, tensors: Params, n_items: int) -> None:
    """Refuse tensors that are not weights of so many items; which sources they have is checked elsewhere."""
    wrong = None
    if set(tensors) != set(COMPACT):
        wrong = f"the tensors {', '.join(sorted(tensors))}"
    elif any(tensors[name].dtype not in kinds or tensors[name].dim() != 1 for name, kinds in _KINDS.items()):
        wrong = "weights of another type"
    elif not len(tensors[COUNTS]) == len(tensors[SCALES]) == n_items:
        wrong = "weights of another number of items"
    elif int(tensors[COUNTS].min()) < 0 or not (
        int(tensors[COUNTS].sum()) == len(tensors[SOURCES]) == len(tensors[LEVELS])
    ):
        wrong = "weights that do not fit their counts"
    elif not bool(torch.isfinite(tensors[SCALES]).all()):
        wrong = "weights that are not finite"
    if wrong:
        raise BundleError(
            f"{bundle.path} has {wrong}, not compact weights", "ask the publisher for a new bundle"
        )
