"""Train a method on a data set under a protocol: rounds, validation, selection, and the final test."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from solera.core.errors import ConfigError, RunError
from solera.core.federated import AnyMethod
from solera.data.interactions import Interactions
from solera.data.split import Part, history
from solera.engine import OneRound, Simulation, Solution, State
from solera.engine.process import torch_threads
from solera.evaluate import Evaluation, Evaluator, Score, get, split
from solera.methods import find
from solera.runs.config import VALIDATED, RunConfig
from solera.runs.environment import environment, peak_bytes
from solera.runs.federation import clients_of, federation
from solera.runs.folder import Checkpoint, RunFolder, RunProgress, SavedState
from solera.runs.interrupt import interruptible
from solera.runs.progress import Progress
from solera.runs.recorded import is_recorded
from solera.runs.recording import Recorder
from solera.runs.result import Bytes, Rankings, RoundEntry, RoundSeconds, RunResult
from solera.runs.run import Run

_LOG = logging.getLogger(__name__)
_LEAST_SECONDS = 2.0  # minimum time between checkpoints,
_COST = 20  # and at least this many times the time of the last one: about 5 % of the time at most


class StoppedError(RunError):
    """The run was interrupted and can be resumed."""

    exit_code = 130


def train(
    config: RunConfig,
    data: Interactions,
    *,
    out: Path | None = None,
    resume: bool = False,
    threads: int = 0,
    device: str = "cpu",
    record: bool = False,
    on_round: Callable[[Progress], None] | None = None,
    on_clients: Callable[[int, int], None] | None = None,
    stop: threading.Event | None = None,
) -> Run:
    """Train a method with the settings in `config`, and write the run to `out` if given.

    With `record`, the folder also stores data of single rounds for figures; a resumed run continues
    recording. The round is selected on validation. The test items are scored once, at the end, with that
    round's state. Ctrl-C ends the run after the current round, to be resumed. If `stop` is given, setting it
    does this instead. `on_clients` is called during the round of a method that has only one round, with the
    number of clients done and their total.
    """
    config, method = _method(config)
    if record:
        _check_recordable(method, out)
    check_folder(out, config, resume)
    if out is not None and (out / "config.json").exists() and RunFolder.open(out).result:
        return Run.open(out, data=data)
    training = _Training(config, method, data, threads, device)
    if isinstance(training.simulation, OneRound):
        training.simulation.on_clients = on_clients
    folder = _folder(out, config, resume, environment(threads, device))
    if folder and data.origin is None:
        folder.keep_data(data)
    if folder and (record or is_recorded(folder.path)):
        training.record(folder.path)
    with torch_threads(threads):
        return training.run(folder, on_round, stop)


def validate_rounds(
    config: RunConfig,
    data: Interactions,
    *,
    threads: int = 0,
    on_round: Callable[[Progress], None] | None = None,
    stop: threading.Event | None = None,
) -> list[RoundEntry]:
    """The history of a run that never uses the test items, for choosing settings."""
    config, method = _method(config)
    training = _Training(config, method, data, threads, "cpu")
    with torch_threads(threads):
        training.rounds(None, on_round, stop)
    return training.history


def _method(config: RunConfig) -> tuple[RunConfig, AnyMethod]:
    """The method and its resolved settings, so that equal runs have equal settings."""
    method = find(config.method, config.options, config.plugins)
    if config.rounds != (method.rounds_needed or config.rounds):
        raise ConfigError(f"{method.name!r} needs one round, not {config.rounds}", "omit --rounds")
    return config.resolved(), method


def _check_recordable(method: AnyMethod, out: Path | None) -> None:
    if method.rounds_needed == 1:
        raise ConfigError(
            f"{method.name!r} is solved in one round, so there are no figures per round to record",
            "omit --record-figures",
        )
    if out is None:
        raise ConfigError("recording figures needs a folder for the run", "give it as `out`")


def _folder(
    out: Path | None, config: RunConfig, resume: bool, environment_: dict[str, Any]
) -> RunFolder | None:
    if out is None:
        return None
    if resume and (out / "config.json").exists():
        return RunFolder.open(out)
    return RunFolder.create(out, config, environment_)


def check_folder(out: Path | None, config: RunConfig, resume: bool) -> None:
    """Refuse a folder that holds another run, before data are loaded."""
    if out is None or not (out / "config.json").exists():
        return
    folder = RunFolder.open(out)
    if difference := config.resolved().difference(folder.config):
        raise RunError(f"{out} contains another run: {difference}", "give another --out")
    if not resume:
        finished = folder.result is not None
        raise RunError(
            f"{out} contains {'this' if finished else 'an unfinished'} run already",
            "give another --out" if finished else "give --resume to continue it, or another --out",
        )


class _Training:
    def __init__(
        self, config: RunConfig, method: AnyMethod, data: Interactions, threads: int, device: str
    ) -> None:
        self.config, self.method = config, method
        self.protocol = get(config.protocol)
        self.split = split(data, config.protocol)
        self.evaluator = Evaluator(
            self.split, config.seed, config.at, validated=config.evaluate_users or VALIDATED
        )
        self.simulation = federation(config, method, clients_of(self.split), threads, device)
        self.history: list[RoundEntry] = []
        self.best: State | Solution = self.simulation.state
        self.best_round = 0
        self._saved_at, self._saving_took = time.perf_counter(), 0.0
        self._recorder: Recorder | None = None

    def record(self, path: Path) -> None:
        """Record data of the following rounds for figures, in the run's folder."""
        assert isinstance(self.simulation, Simulation)
        # Noise on the wire accumulates in a table that the server only knows as the sum of what was sent.
        adds_up = self.config.wire and any(leaf.feeds for leaf in self.simulation.method.leaves)
        seen = not (self.config.secure_aggregation or self.config.dp or adds_up)
        self._recorder = Recorder(self.simulation, path, self.config.rounds, uploads=seen)

    def run(
        self,
        folder: RunFolder | None,
        on_round: Callable[[Progress], None] | None,
        stop: threading.Event | None,
    ) -> Run:
        checkpoint = folder.read_checkpoint() if folder else None
        if checkpoint:
            self._restore(checkpoint)
        if folder:
            folder.begin_history(self.history)
        self.rounds(folder, on_round, stop)
        return self._finish(folder)

    def rounds(
        self,
        folder: RunFolder | None,
        on_round: Callable[[Progress], None] | None,
        stop: threading.Event | None,
    ) -> None:
        """Train until the last round, or until validation has not improved for `patience` rounds."""
        with nullcontext(stop) if stop else interruptible(_say_stopping) as interrupted:
            while not self._done():
                self._round(len(self.history))
                if on_round:
                    on_round(Progress(len(self.history), self.config.rounds, self.history[-1]))
                if folder:
                    folder.add_round(self.history[-1])
                    self._save(folder, now=interrupted.is_set())
                if interrupted.is_set() and not self._done():
                    raise _stopped_error(len(self.history), self.config.rounds, folder)

    def _done(self) -> bool:
        done, patience = len(self.history), self.config.patience
        chosen = done > 0 and self.history[self.best_round].selection is not None
        tired = patience is not None and chosen and done - 1 - self.best_round >= patience
        return tired or done >= self.config.rounds

    def _round(self, number: int) -> None:
        if self._recorder:
            self._recorder.begin(number)
        start = time.perf_counter()
        trained = self.simulation.run_round(number)
        middle = time.perf_counter()
        due = (number + 1) % self.config.evaluate_every == 0 or number + 1 == self.config.rounds
        validation = self.evaluator.validation(self._score("validation")) if due else None
        seconds = RoundSeconds(train=middle - start, evaluate=time.perf_counter() - middle)
        if self._recorder:
            self._recorder.end(number)
        value = validation.selected(self.protocol, self.config.select_by) if validation else None
        # Under differential privacy the last round is used: selecting a round would look at data.
        if self.config.dp or self._is_best(value):
            self.best, self.best_round = self.simulation.state.copy(), number
        self.history.append(
            RoundEntry(
                round=number + 1,
                clients=trained.clients,
                loss=trained.loss,
                selection=value,
                validation=Rankings.of(validation) if validation else None,
                **self._sampled(validation),
                bytes=Bytes(up=trained.bytes_up, down=trained.bytes_down),
                seconds=seconds,
            )
        )

    def _is_best(self, value: float | None) -> bool:
        if value is None:
            return False
        best = self.history[self.best_round].selection if self.history else None
        return best is None or value > best

    def _sampled(self, validation: Evaluation | None) -> dict[str, Any]:
        """Of a validation on a sample of users: how many, and the interval of the selecting metric."""
        users = self.evaluator.users("validation")
        if validation is None or users == np.count_nonzero(self.split.validation.lengths):
            return {}
        low, high = validation.interval(self.protocol, self.config.select_by)
        return {"validated": users, "interval": (low, high)}

    def _finish(self, folder: RunFolder | None) -> Run:
        self.simulation.state = self.best
        test = self.evaluator.test(self._score("test"))
        chosen = self.history[self.best_round]
        assert chosen.validation is not None  # the last round always has one
        sent = [entry.bytes for entry in self.history]
        result = RunResult.of(
            self.config.full_method,
            self.split,
            self.config.seed,
            test=test,
            validation=chosen.validation,
            rounds=len(self.history),
            selected_round=chosen.round,
            seconds_per_round=float(np.median([entry.seconds.train for entry in self.history])),
            peak_bytes=peak_bytes(),
            bytes=Bytes(up=float(np.mean([b.up for b in sent])), down=float(np.mean([b.down for b in sent]))),
            options=self.config.options,
            engine=self.config.engine,
            precision=self.config.precision,
            secure_aggregation=self.config.secure_aggregation,
            privacy=self.config.statement(self.method),
        )
        if folder:
            folder.finish(result, _saved(self.best))
        path = folder.path if folder else None
        return Run(result, self.split.data, self.simulation, path, self.history)

    def _score(self, part: Part) -> Score:
        return self.simulation.serve(history(self.split, part))

    def _save(self, folder: RunFolder, *, now: bool) -> None:
        start = time.perf_counter()
        if not now and start - self._saved_at < max(_LEAST_SECONDS, _COST * self._saving_took):
            return
        progress = RunProgress(
            rounds_done=len(self.history), best_round=self.best_round, history=tuple(self.history)
        )
        folder.write_checkpoint(Checkpoint(progress, _saved(self.simulation.state), _saved(self.best)))
        self._saved_at = time.perf_counter()
        self._saving_took = self._saved_at - start

    def _restore(self, checkpoint: Checkpoint) -> None:
        self.simulation.restore(checkpoint.best.shared, checkpoint.best.personal)
        self.best = self.simulation.state.copy()
        self.simulation.restore(checkpoint.last.shared, checkpoint.last.personal)
        self.history = list(checkpoint.progress.history)
        self.best_round = checkpoint.progress.best_round


def _say_stopping() -> None:
    _LOG.warning("stopping after this round; press Ctrl-C again to stop at once")


def _saved(state: State | Solution) -> SavedState:
    return SavedState(*state.tensors())


def _stopped_error(done: int, rounds: int, folder: RunFolder | None) -> StoppedError:
    hint = "give the same command again with --resume" if folder else "give --out to be able to resume"
    return StoppedError(f"stopped after round {done} of {rounds}", hint)
