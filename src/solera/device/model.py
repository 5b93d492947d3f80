"""The model in a bundle: its tensors checked against what the method declares, and what it serves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor

from solera.core.closed_form import ClosedForm
from solera.core.errors import BundleError, ConfigError, DeviceError
from solera.core.history import INPUTS, FadingHistory, remembers
from solera.core.method import Method
from solera.core.spec import Home, Params
from solera.data.ragged import Ints, Ragged
from solera.data.sampling import ClientData
from solera.device.bundle import TENSORS, Bundle
from solera.engine import OneRound, Simulation, train_one_by_one
from solera.engine.one_round import WEIGHTS
from solera.engine.serving import best_unseen
from solera.methods import find, names

Shapes = dict[str, tuple[int, ...]]


class Parts(NamedTuple):
    """What a score is the sum of: the item's own popularity, and a part of every item of the history."""

    popular: float
    of_history: Sequence[float]


def shared_shapes(method: Method | ClosedForm, n_items: int) -> Shapes:
    """The shared parameters of a method; one that keeps a table per client shares none of it."""
    if isinstance(method, ClosedForm):
        return {WEIGHTS: (method.scorer.channels * n_items, n_items)}
    if method.tailored:
        raise BundleError(
            f"the server of {method.name!r} keeps a table for every client: that is nobody else's",
            f"methods whose model is the same for everybody: {', '.join(served_from_history())}",
        )
    return {
        leaf.name: (n_items, *leaf.shape) if leaf.per_item else leaf.shape
        for leaf in method.select(home=Home.SHARED)
    }


def needs_history_alone(method: Method | ClosedForm) -> bool:
    """Whether a user is served by the own history, without any parameters of its own."""
    if isinstance(method, ClosedForm):
        return True
    personal = method.select(home=Home.PERSONAL) or method.view.keeps or method.tailored
    return remembers(method.scorer) and not personal


def served_from_history() -> list[str]:
    """The methods that serve whoever has a history."""
    return [name for name in names() if needs_history_alone(find(name))]


class Model:
    """A bundle's method and shared parameters."""

    def __init__(self, bundle: Bundle) -> None:
        manifest = bundle.manifest
        try:
            self.method = find(manifest.method, manifest.options, manifest.plugins)
        except ConfigError as error:
            message = f"{bundle.path}: this version of Solera cannot take its method: {error.message}"
            raise BundleError(message, "pip install --upgrade solera") from None
        self.n_items = manifest.items
        self.dtype = torch.float64 if manifest.precision == "double" else torch.float32
        self.shared = self._checked(bundle)

    def _checked(self, bundle: Bundle) -> Params:
        """The tensors, of the declared names, shapes and type, and finite."""
        again = "ask the publisher for a new bundle"
        try:
            tensors: Params = load(bundle.read(TENSORS))
        except (SafetensorError, ValueError) as error:
            raise BundleError(f"{bundle.path}: {TENSORS} cannot be read: {error}", again) from None
        wanted = shared_shapes(self.method, self.n_items)
        found = {name: tuple(value.shape) for name, value in tensors.items()}
        if found != wanted:
            message = f"{bundle.path} has the tensors {found}, but {self.method.name!r} declares {wanted}"
            raise BundleError(message, again)
        for name, value in tensors.items():
            if value.dtype != self.dtype or not bool(torch.isfinite(value).all()):
                raise BundleError(f"{bundle.path}: {name!r} is not all finite {self.dtype} numbers", again)
        return tensors

    def scores(self, history: Ints) -> Tensor:
        """Of all items for a user of that history, oldest first: what the simulator would give."""
        if not needs_history_alone(self.method):
            raise DeviceError(
                f"{self.method.name!r} serves users by parameters of their own, and this device has none yet:"
                " it has not taken part in training",
                f"take a bundle of a method that needs the history alone: {', '.join(served_from_history())}",
            )
        nobody = Ragged.from_lists([[]])
        clients = ClientData(nobody, nobody, self.n_items)
        place = torch.device("cpu")
        known = Ragged.of_lengths(np.array([len(history)]), history)
        if isinstance(self.method, ClosedForm):
            one_round = OneRound(self.method, clients, device=place, dtype=self.dtype)
            one_round.restore(self.shared, {})
            return one_round.serve(known)(np.array([0]))[0]
        simulation = Simulation(
            self.method, clients, train_one_by_one, seed=0, device=place, dtype=self.dtype
        )
        simulation.restore(self.shared | simulation.state.memory, {})
        return simulation.serve(known)(np.array([0]))[0]

    def best(self, history: Ints, seen: Ints, k: int) -> list[tuple[int, float]]:
        """The k best items that are not among the seen ones, with their scores."""
        return best_unseen(self.scores(history), seen, k)

    def parts(self, history: Ints, items: Sequence[int]) -> list[Parts]:
        """What the items' scores are made of; every score is linear in the history."""
        columns, places = torch.tensor(items), torch.from_numpy(history)
        ages = np.arange(len(history))[::-1].copy()
        if isinstance(self.method, ClosedForm):
            weights = torch.from_numpy(self.method.scorer.weights(ages))  # [channels, length]
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
