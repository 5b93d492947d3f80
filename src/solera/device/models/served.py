"""What every model that serves from a history can do, and its tensors, checked before they are used."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from solera.core.errors import BundleError, DeviceError
from solera.core.types import Floats, Ints
from solera.device.bundle import Manifest

FROM_HISTORY = ("fedease", "fedhist", "fedsasrec", "fedslist")  # methods that need nothing but a history
LINEAR = ("fedease", "fedhist", "fedslist")  # those whose scores are sums over the items of the history
AGAIN = "ask the publisher for a new bundle"


def tests_of(manifest: Manifest) -> dict[str, dict[str, float]]:
    """The figures of `test` and `test_train` in full ranking, as far as a manifest has them.

    A bundle of version 0.2 has the test of the model as trained, and calls it `test`.
    """
    told: dict[str, dict[str, float]] = {
        name: manifest.trained[name]["full"] for name in ("test", "test_train") if name in manifest.trained
    }
    if not told or "format" in manifest.trained or manifest.second or manifest.method in FROM_HISTORY:
        return told
    return {"test_train": told["test"]}


class Parts(NamedTuple):
    """What a score is the sum of: the item's own popularity, and a part of every item of the history."""

    popular: float
    of_history: Sequence[float]


class Served(ABC):
    """A model that a user is served with."""

    serves_from_history = True  # a history is all that scores need
    is_linear = False  # every score is a sum over the items of the history

    def __init__(self, method: str, n_items: int) -> None:
        self.method, self.n_items = method, n_items

    @abstractmethod
    def scores(self, history: Ints, days: Floats | None = None, asked: float | None = None) -> Floats:
        """Of all items for a user of that history, oldest first.

        `days` are those of the history, `asked` is that of the request.
        """

    @abstractmethod
    def similarity(self, row: int) -> Floats:
        """How much the model connects every item with one item."""

    def parts(
        self, history: Ints, items: Sequence[int], days: Floats | None = None, asked: float | None = None
    ) -> list[Parts]:
        """What the items' scores are made of, where every score is linear in the history."""
        raise DeviceError(
            f"{self.method!r} does not score by single items of the history, so it cannot give reasons",
            f"omit --why, or use a bundle of {', '.join(LINEAR)}",
        )

    def best(
        self, history: Ints, seen: Ints, k: int, days: Floats | None = None, asked: float | None = None
    ) -> list[tuple[int, float]]:
        """The k best items that are not among the seen ones, with their scores, best first."""
        return _best(self.scores(history, days, asked), seen, k)

    def similar(self, row: int, k: int) -> list[int]:
        """The k items that the model connects most with an item, best first.

        They are what somebody is recommended whose history is this item alone. Methods with item vectors have
        the cosine instead, in which popularity counts less. Methods that need personal parameters have none.
        """
        if not self.serves_from_history:
            return []
        best = _best(self.similarity(row), np.array([row], dtype=np.int64), k)
        return [each for each, score in best if score > 0]


def not_trained(method: str) -> DeviceError:
    """The error of a model that a federation begins with."""
    return DeviceError(
        f"the model of {method!r} has not been trained yet",
        "take part in its federation with solera node start, or use a bundle of a trained model",
    )


class Untrained(Served):
    """The model of a bundle that a federation begins with."""

    serves_from_history = False

    def scores(self, history: Ints, days: Floats | None = None, asked: float | None = None) -> Floats:
        """There are none yet."""
        raise not_trained(self.method)

    def similarity(self, row: int) -> Floats:
        """There is none yet."""
        return self.scores(np.array([row]))


def _best(scores: Floats, seen: Ints, k: int) -> list[tuple[int, float]]:
    scores[seen] = -np.inf
    order = np.argsort(-scores, kind="stable")[: min(k, len(scores) - len(np.unique(seen)))]
    return [(int(row), float(scores[row])) for row in order]


class Tensors:
    """Tensors of a model, each taken once: of the declared shape and type, and finite."""

    def __init__(self, path: Path, found: Mapping[str, NDArray[Any]], floats: type[np.floating[Any]]) -> None:
        self._path, self._found, self._floats = path, dict(found), floats

    def __contains__(self, name: str) -> bool:
        return name in self._found

    def rows(self, name: str) -> int:
        """How many rows a tensor has that may have fewer than there are items."""
        return len(self._found[name]) if name in self._found else 0

    def take(self, name: str, *shape: int | None, kinds: Sequence[type[np.generic]] = ()) -> NDArray[Any]:
        """A tensor; None in its shape stands for any length."""
        value = self._found.pop(name, None)
        if value is None:
            raise self.fault(f"no tensor {name!r}")
        fits = len(value.shape) == len(shape) and all(
            want in {None, have} for want, have in zip(shape, value.shape, strict=True)
        )
        if not fits or value.dtype not in (kinds or (self._floats,)):
            raise self.fault(f"a tensor {name!r} of {value.dtype} {value.shape}, which does not fit")
        if value.dtype.kind == "f" and not np.isfinite(value).all():
            raise self.fault(f"a tensor {name!r} that is not all finite numbers")
        return value

    def end(self) -> None:
        """Refuse tensors that nothing has asked for."""
        if self._found:
            raise self.fault(f"the unknown tensors {', '.join(sorted(self._found))}")

    def fault(self, what: str) -> BundleError:
        """The error of a model that cannot be used."""
        return BundleError(f"{self._path} has {what}", AGAIN)


def cosines(table: NDArray[Any], row: int) -> Floats:
    """The cosine of one row of a table with every row; 0 of a row of zeros."""
    lengths = np.maximum(np.sqrt(np.einsum("ij,ij->i", table, table, dtype=np.float64)), 1e-8)
    found: Floats = (table @ table[row]).astype(np.float64) / (lengths * lengths[row])
    return found
