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

from solera.core.closed_form import NEIGHBOURS, WEIGHTS, AnyMethod
from solera.core.errors import BundleError, ConfigError, DeviceError
from solera.core.leaf import INPUTS, Home, Params
from solera.core.types import Floats, Ints
from solera.data.ragged import Ragged
from solera.device.bundle import (
    COMPACT_FORMAT,
    FORMAT,
    SECOND,
    TENSORS,
    Bundle,
    Manifest,
    ModelEntry,
    SecondModel,
)
from solera.device.compact import check_compact
from solera.device.tensors import Arrays
from solera.engine import OneRound, Simulation
from solera.engine.one_round import memory_weights
from solera.engine.server import derived
from solera.engine.serving import best_unseen, newcomer
from solera.math.sparse_ridge import LEVELS, Neighbours, resized
from solera.methods import find, names
from solera.methods.fedhist import FadingHistory
from solera.runs.recommending import mixed
from solera.runs.result import TESTS, reads_histories


class Parts(NamedTuple):
    """What a score is the sum of: the item's own popularity, and a part of every item of the history."""

    popular: float
    of_history: Sequence[float]


def served_from_history() -> list[str]:
    """The methods that serve whoever has a history."""
    return [name for name in names() if find(name).serves_from_history]


def tests_of(manifest: Manifest) -> dict[str, dict[str, float]]:
    """The figures of `test` and `test_train` in full ranking, as far as a manifest has them.

    A bundle of version 0.2 has the test of the model as trained, and calls it `test`.
    """
    told: dict[str, dict[str, float]] = {
        name: manifest.trained[name]["full"] for name in TESTS[::-1] if name in manifest.trained
    }
    if not told or "format" in manifest.trained or reads_histories(manifest.full_method):
        return told
    return {"test_train": told["test"]}


def _is_linear(method: AnyMethod) -> bool:
    return method.serves_from_history and (method.one_round or method.scorer.learns_from == "sequences")


class Model:
    """A bundle's method, and the parameters that a user is served with.

    Those that a federation has `shared` with the user take the place of the bundle's; `personal` are the
    user's own.
    """

    def __init__(
        self,
        bundle: Bundle,
        shared: Arrays | None = None,
        personal: Arrays | None = None,
        *,
        second: SecondModel | None = None,
    ) -> None:
        """With `second`, that model of a blend alone."""
        manifest, about = bundle.manifest, second or bundle.manifest
        self.method = _method(bundle, about)
        self.n_items, self.seed = manifest.items, about.seed
        self.dtype = torch.float64 if about.precision == "double" else torch.float32
        self._second = Model(bundle, second=manifest.second) if manifest.second and not second else None
        self._weight = manifest.second.weight if manifest.second else 0.0
        self.shared = self._grown(shared) if shared else self._checked(bundle, second is not None)
        self._personal = {name: torch.from_numpy(value.copy()) for name, value in (personal or {}).items()}

    @property
    def serves_from_history(self) -> bool:
        """Whether a history is all that scores need."""
        return all(each.method.serves_from_history for each in (self, self._second) if each)

    @property
    def is_linear(self) -> bool:
        """Whether every score is a sum over the items of the history."""
        return self._second is None and _is_linear(self.method)

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

    def _checked(self, bundle: Bundle, second: bool) -> Params:
        """The tensors, of the declared names, shapes and type, and finite; none where nothing is trained."""
        again = "ask the publisher for a new bundle"
        try:
            tensors: Params = {
                name.removeprefix(SECOND) if second else name: value
                for name, value in load(bundle.read(TENSORS)).items()
                if bundle.manifest.second is None or name.startswith(SECOND) is second
            }
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
        scores = self._own_scores(history, days, asked)
        return mixed(scores, self._second.scores(history), self._weight) if self._second else scores

    def _own_scores(self, history: Ints, days: Floats | None, asked: float | None) -> Tensor:
        """The scores without those of a second model."""
        if not self.shared:
            raise DeviceError(
                f"the model of {self.method.name!r} has not been trained yet",
                "take part in its federation with solera node start, or use a bundle of a trained model",
            )
        me = np.array([0])
        alone, known = self._alone(history, days, asked)
        if isinstance(alone, Simulation):
            if self._personal:
                alone.state.personal.take_client(0, self._personal)
            elif not self.method.serves_from_history:
                deque(alone.train_clients(0, me), maxlen=0)
        return alone.serve(known)(me)[0]

    def scores_of_all(self, histories: Ragged) -> Tensor:
        """Scores [users, items] of users who are served from their histories alone."""
        nobody, _ = self._alone(np.empty(0, dtype=np.int64), None, None)
        scores = nobody.serve(histories)(np.arange(len(histories)))
        return mixed(scores, self._second.scores_of_all(histories), self._weight) if self._second else scores

    def best(
        self, history: Ints, seen: Ints, k: int, days: Floats | None = None, asked: float | None = None
    ) -> list[tuple[int, float]]:
        """The k best items that are not among the seen ones, with their scores."""
        return best_unseen(self.scores(history, days, asked), seen, k)

    def similar(self, row: int, k: int) -> list[int]:
        """The k items that the model connects most with an item, best first.

        They are what somebody is recommended whose history is this item alone. Methods with item vectors have
        the cosine instead, in which popularity counts less. Methods that need personal parameters have none.
        """
        if not self.method.serves_from_history:
            return []
        best = best_unseen(self.similarity(row), np.array([row], dtype=np.int64), k)
        return [each for each, score in best if score > 0]

    def similarity(self, row: int) -> Tensor:
        """How much the model connects every item with one item; of a blend, the blend of both models'."""
        if self.method.one_round:
            scores = self._own_scores(np.array([row], dtype=np.int64), None, None)
        else:
            vectors = self.method.view.see(self.shared).double()
            scores = torch.nn.functional.cosine_similarity(vectors, vectors[row], dim=-1)
        return mixed(scores, self._second.similarity(row), self._weight) if self._second else scores

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

    def parts(
        self, history: Ints, items: Sequence[int], days: Floats | None = None, asked: float | None = None
    ) -> list[Parts]:
        """What the items' scores are made of, where every score is linear in the history."""
        if not self.is_linear:
            raise DeviceError(
                f"{self.method.name!r} does not score by single items of the history, so it cannot "
                "give reasons",
                f"omit --why, or use a bundle of {', '.join(n for n in names() if _is_linear(find(n)))}",
            )
        columns, places = torch.tensor(items), torch.from_numpy(history)
        ages = np.arange(len(history))[::-1].copy()
        if self.method.one_round:
            _, known = self._alone(history, days, asked)
            weights = torch.from_numpy(memory_weights(self.method, known))  # [channels, length]
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
    """A bundle's method with its options, for a federation to train."""
    if bundle.manifest.second:
        raise BundleError(
            f"{bundle.path} blends two models, which a federation does not train",
            "train each of them, and blend the runs",
        )
    return _method(bundle, bundle.manifest)


def _method(bundle: Bundle, about: ModelEntry) -> AnyMethod:
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
