"""A finished run: its metrics, and recommendations from its model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import polars as pl
from pydantic import ValidationError
from torch import Tensor

from solera.core.closed_form import AnyMethod
from solera.core.errors import RunError
from solera.core.frozen import Frozen
from solera.core.leaf import Home
from solera.core.types import Ints
from solera.data.interactions import Interactions, Split, history
from solera.data.ragged import Ragged
from solera.data.sampling import ClientData
from solera.evaluate import Evaluation, Evaluator, split
from solera.runs.federation import Federation, federation
from solera.runs.folder import RunFolder, SavedState
from solera.runs.histories import tests_of
from solera.runs.recommending import Blended, Recommends
from solera.runs.result import RANKINGS, Figures, Rankings, RoundEntry, RunResult, TestName, flat

BLEND = "blend.json"  # in the folder of a blend, beside the folders of its two runs
FIRST, SECOND = "first", "second"  # these folders
_CLOSE = 0.002  # what rounding on another machine may do to a mean


class BlendSettings(Frozen):
    """What is saved of a blend: the weight of the second model, and the validation figure of every weight."""

    weight: float
    validation: dict[float, float]


class Run(Figures, Recommends):
    """A finished run: `result` with all metrics, and the model of the selected round."""

    def __init__(
        self,
        result: RunResult,
        data: Interactions,
        simulation: Federation | Blended | None,
        path: Path | None,
        rounds: Sequence[RoundEntry],
    ) -> None:
        """Without `simulation`, the model is read from the folder `path` when it is first needed."""
        self.result, self.data, self.path = result, data, path
        self._given, self._rounds = simulation, rounds

    @cached_property
    def _simulation(self) -> Federation | Blended:
        if self._given is not None:
            return self._given
        assert self.path is not None
        return Run.open(self.path, data=self.data)._simulation

    @classmethod
    def open(cls, path: str | Path, *, data: Interactions | None = None, data_dir: Path | None = None) -> Run:
        """Open the folder of a finished run. The data set is loaded again unless it is given."""
        if (Path(path) / BLEND).exists():
            return cls._blended(Path(path), data, data_dir)
        folder = RunFolder.open(Path(path))
        config, result = folder.config, folder.result
        state = folder.state()
        assert result is not None  # checked by state()
        if data is None:
            data = folder.data(data_dir)
        if (data.n_users, data.n_items) != (result.users, result.items):
            raise RunError(
                f"the data set {config.dataset!r} has changed since the run in {path}",
                f"it had {result.users} users and {result.items} items",
            )
        method = config.built
        _check_fits(method, state, data, folder.path)
        # Nothing is trained here, so nothing has to be held out: a split would take as long as loading.
        clients = ClientData(data.by_user, data.by_user, data.n_items)
        simulation = federation(config, method, clients, threads=1, device="cpu")
        _restore(simulation, state, folder.path)
        return cls(result, data, simulation, folder.path, folder.history)

    @classmethod
    def _blended(cls, path: Path, data: Interactions | None, data_dir: Path | None) -> Run:
        """Open the folder of a blend of two runs."""
        settings, result = read_blend(path)
        first = cls.open(path / FIRST, data=data, data_dir=data_dir)
        second = cls.open(path / SECOND, data=first.data)
        return cls(result, first.data, Blended(first, second, settings.weight), path, ())

    def __repr__(self) -> str:
        """Method, data set and main metrics in one line."""
        return repr(self.result)

    def _repr_html_(self) -> str:
        """The HTML that a notebook shows."""
        return self.result._repr_html_()

    @property
    def history(self) -> pl.DataFrame:
        """One row per round: loss, seconds, bytes, and metrics on validation items."""
        return pl.DataFrame(
            [dict(flat(entry.model_dump())) for entry in self._rounds], infer_schema_length=None
        )

    def serve(self, known: Ragged) -> Callable[[Ints], Tensor]:
        """A function that scores all items for users, given the histories of all users, oldest first."""
        return self._simulation.serve(known)

    def evaluate(self, name: TestName = "test") -> Evaluation:
        """Rank the test items again with the model of the selected round, and return every user's ranks."""
        if isinstance(self._simulation, Blended):
            known = history(self.parts, "test") if name == "test" else self.parts.train
            return self._evaluator.test(self._simulation.serve(known))
        asked = tests_of(self._simulation, self.parts, self.result.selected_round or 0)
        return self._evaluator.test(asked.scores[name]())

    def evaluate_again(self, name: TestName) -> Evaluation:
        """`evaluate`. Raise an error if it does not give the recorded metrics."""
        found = self.evaluate(name)
        now, then = Rankings.of(found), self.result.tests[name]
        for ranking in RANKINGS:
            for metric, value in then[ranking].items():
                if abs(now[ranking][metric] - value) > _CLOSE:
                    raise RunError(
                        f"the model in {self.path} has {name} {ranking} {metric} "
                        f"{now[ranking][metric]:.4f}, not {value:.4f} as in its result.json: the data set "
                        "or the program has changed",
                        "train it again",
                    )
        return found

    @cached_property
    def parts(self) -> Split:
        """Training, validation and test items of the run."""
        return split(self.data, self.result.protocol)

    @cached_property
    def _evaluator(self) -> Evaluator:
        return Evaluator(self.parts, self.result.seed, self.result.cutoffs)


def _check_fits(method: AnyMethod, saved: SavedState, data: Interactions, path: Path) -> None:
    """Raise an error if saved tensors have wrong shapes, before tensors of that size are allocated."""
    wanted = {
        name: (data.n_users, *shape) if name in method.tailored else shape
        for name, shape in method.shared_shapes(data.n_items).items()
    }
    found = {name: tuple(value.shape) for name, value in saved.shared.items() if name in wanted}
    whole = {leaf.name: leaf.shape for leaf in method.select(home=Home.PERSONAL, per_item=False)}
    own = {name: tuple(value.shape[1:]) for name, value in saved.personal.items() if name in whole}
    if found != wanted or own != whole:
        raise RunError(f"the state in {path} does not fit the run's method", "train again into a new folder")


def _restore(simulation: Federation, saved: SavedState, path: Path) -> None:
    """Restore a federation from a folder, whose tensors are not trusted."""
    n_items = simulation.data.n_items
    try:
        items = [value for name, value in saved.personal.items() if name.endswith("/items")]
        if any(value.numel() and not 0 <= int(value.min()) <= int(value.max()) < n_items for value in items):
            raise ValueError("rows of items that do not exist")
        before = {name: value.shape for name, value in simulation.state.tensors()[0].items()}
        simulation.restore(saved.shared, saved.personal)
        after = {name: value.shape for name, value in simulation.state.tensors()[0].items()}
        if before and before != after:
            raise ValueError(f"shapes {after}, not {before}")
        simulation.serve(simulation.data.train)(np.array([0]))
    except (KeyError, ValueError, IndexError, RuntimeError, TypeError) as error:
        message = f"the state in {path} does not fit its method and data set: {error}"
        raise RunError(message[:300], "train again into a new folder") from None


def read_blend(path: Path) -> tuple[BlendSettings, RunResult]:
    """The settings and the result in the folder of a blend."""
    try:
        settings = BlendSettings.model_validate_json((path / BLEND).read_text(encoding="utf-8"))
        return settings, RunResult.model_validate_json((path / "result.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, ValidationError) as error:
        raise RunError(f"the blend in {path} cannot be read: {error}", "blend the runs again") from None
