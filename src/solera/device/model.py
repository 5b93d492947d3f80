"""The model in a bundle: its tensors checked against what the method declares, and what it serves."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor

from solera.core.arrays import Ints
from solera.core.closed_form import ClosedForm
from solera.core.errors import BundleError, ConfigError, DeviceError
from solera.core.federated import AnyMethod
from solera.core.history import INPUTS, FadingHistory
from solera.core.neighbours import LEVELS, NEIGHBOURS, WEIGHTS, Neighbours, resized
from solera.core.spec import Home, Params
from solera.device.bundle import COMPACT_FORMAT, GENRES_FORMAT, TENSORS, Bundle
from solera.device.compact import check_compact
from solera.device.tensors import Arrays
from solera.engine import Simulation
from solera.engine.server import derived
from solera.engine.serving import best_unseen, newcomer
from solera.methods import find, names

Shapes = dict[str, tuple[int, ...]]


class Parts(NamedTuple):
    """What a score is the sum of: the item's own popularity, and a part of every item of the history."""

    popular: float
    of_history: Sequence[float]


def served_from_history() -> list[str]:
    """The methods that serve whoever has a history."""
    return [name for name in names() if find(name).serves_from_history]


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
        if isinstance(self.method, ClosedForm):
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
        compact = version == COMPACT_FORMAT or (version == GENRES_FORMAT and LEVELS in tensors)
        if isinstance(self.method, ClosedForm) and compact:
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
        if isinstance(self.method, ClosedForm) and self.method.neighbours:
            _check_sources(tensors, self.method.scorer.channels)
        return tensors

    def scores(self, history: Ints) -> Tensor:
        """Of all items for a user of that history, oldest first: what the simulator would give.

        A user who needs parameters of its own and has none yet trains them here and now, alone.
        """
        if not self.shared:
            raise DeviceError(
                f"the model of {self.method.name!r} has not been trained yet",
                "take part in its federation with solera node start, or use a bundle of a trained model",
            )
        me = np.array([0])
        alone, known = newcomer(
            self.method, self.shared, history, self.n_items, seed=self.seed, dtype=self.dtype
        )
        if isinstance(alone, Simulation):
            if self._personal:
                alone.state.personal.take_client(0, self._personal)
            elif not self.method.serves_from_history:
                deque(alone.train_clients(0, me), maxlen=0)
        return alone.serve(known)(me)[0]

    def best(self, history: Ints, seen: Ints, k: int) -> list[tuple[int, float]]:
        """The k best items that are not among the seen ones, with their scores."""
        return best_unseen(self.scores(history), seen, k)

    def parts(self, history: Ints, items: Sequence[int]) -> list[Parts]:
        """What the items' scores are made of, where every score is linear in the history."""
        if not self.method.serves_from_history:
            raise DeviceError(
                f"{self.method.name!r} does not score by single items of the history, so it cannot "
                "give reasons",
                f"omit --why, or use a bundle of {', '.join(served_from_history())}",
            )
        columns, places = torch.tensor(items), torch.from_numpy(history)
        ages = np.arange(len(history))[::-1].copy()
        if isinstance(self.method, ClosedForm):
            weights = torch.from_numpy(self.method.scorer.weights(ages))  # [channels, length]
            sparse = Neighbours.of(self.shared, len(weights), self.dtype)
            if sparse:
                rows = torch.stack([sparse.column(item)[places].T for item in items], dim=-1).double()
            else:
                table = self.shared[WEIGHTS].view(-1, self.n_items, self.n_items)
                rows = table[:, places[:, None], columns].double()  # [channels, length, items]
            found = torch.einsum("cl,cli->il", weights, rows)
            return [Parts(0.0, each.tolist()) for each in found]
        scorer = self.method.scorer
        assert isinstance(scorer, FadingHistory)
        inputs = self.shared[INPUTS][places].double()
        counts = torch.full((len(history),), len(history))
        fading = scorer.fading(torch.from_numpy(ages), counts)[scorer.of_dimensions(inputs.shape[-1])].T
        vectors = self.method.view.see(self.shared)[columns].double()
        found = vectors[:, 1:] @ (fading * inputs).T
        return [Parts(float(vector[0]), each.tolist()) for vector, each in zip(vectors, found, strict=True)]


def method_of(bundle: Bundle) -> AnyMethod:
    """A bundle's method with its options."""
    manifest = bundle.manifest
    try:
        return find(manifest.method, manifest.options, manifest.plugins)
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
