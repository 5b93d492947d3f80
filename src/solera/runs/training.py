"""Train a method: the rounds of a run, in this process or together with other ranks, and callbacks.

Every round trains the chosen clients, adds up what they send, and ranks validation items. The best round on
validation counts. The test items are ranked at the end, with that round's state. Progress, tracking
and early stopping are callbacks, and so can be something of your own:

    class Loud(solera.Callback):
        def after_round(self, done):
            print(done.rounds_done, done.figures)

    solera.train("fedmf", data, callbacks=[Loud()])
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from solera.core.errors import ConfigError, RunError
from solera.core.threads import memory_given_back, torch_threads
from solera.data.interactions import Interactions, Part, history, when_asked
from solera.data.ragged import Ragged
from solera.engine import OneRound, Simulation, Solution, State
from solera.engine.ranks import Ranks
from solera.evaluate import Evaluation, Evaluator, Ranking, Score, get, split
from solera.evaluate.ranking import CHUNK
from solera.runs.environment import environment, peak_bytes
from solera.runs.federation import clients_of, federation
from solera.runs.folder import Checkpoint, RunFolder, RunProgress, StateToSave
from solera.runs.histories import tests_of
from solera.runs.plan import RunPlan, plan_of
from solera.runs.result import Bytes, Progress, Rankings, RoundEntry, RoundSeconds, RunResult, Tested
from solera.runs.run import Run
from solera.runs.settings import BOTH_UP_TO, VALIDATED, RunConfig

_LOG = logging.getLogger(__name__)
_WATCHED = 1_000  # of the round's clients, to see whether they still move
_STILL = 0.05  # of them, up to which training has stopped
_OF_SCORES = 200  # bytes of memory for every score that is computed at a time
_LEAST_SECONDS = 2.0  # minimum time between checkpoints,
_COST = 20  # and at least this many times the time of the last one: about 5 % of the time at most


class StoppedError(RunError):
    """The run was interrupted and can be resumed."""

    exit_code = 130


class Callback:
    """Hears of a run. Every hook does nothing; override those you need.

    Callbacks are called in the given order. Of several ranks, only the first one calls them.
    """

    def on_start(self, training: Training) -> None:
        """Before the first round, also after an interruption. `training` changes as the run goes on."""

    def is_done(self, training: Training) -> bool:
        """Whether training ends before its last round. Asked before every round."""
        return False

    def before_round(self, number: int) -> None:
        """Before the round with this number, from 0."""

    def after_round(self, done: Progress) -> None:
        """After every round and its validation."""

    def on_clients(self, done: int, clients: int) -> None:
        """During the round of a method that has only one."""

    def on_users(self, done: int, users: int) -> None:
        """During the test at the end."""

    def on_end(self, run: Run) -> None:
        """After the test, when the run is written."""

    def on_failure(self, error: BaseException) -> None:
        """When the run ends otherwise: an error, or a request to stop."""


class AfterRound(Callback):
    """Calls a function after every round."""

    def __init__(self, function: Callable[[Progress], object]) -> None:
        self._function = function

    def after_round(self, done: Progress) -> None:
        """Call it."""
        self._function(done)


class Patience(Callback):
    """Ends training after so many rounds that are no better on validation."""

    def __init__(self, rounds: int) -> None:
        self._rounds = rounds

    def is_done(self, training: Training) -> bool:
        """Whether the best round is so long ago."""
        done = len(training.history)
        chosen = done > 0 and training.history[training.best_round].selection is not None
        return chosen and done - 1 - training.best_round >= self._rounds


def train(
    config: RunConfig,
    data: Interactions,
    *,
    out: Path | None = None,
    resume: bool = False,
    threads: int = 0,
    device: str = "cpu",
    memory: int | None = None,
    callbacks: Sequence[Callback] = (),
    stop: threading.Event | None = None,
) -> Run:
    """Train a method with the settings in `config`, and write the run to `out` if given.

    Ctrl-C ends the run after the current round, to be resumed. If `stop` is given, setting it does this
    instead. With `memory`, in bytes, a run that would take more is refused, and chunks are chosen to fit.
    """
    try:
        config = config.resolved()
        if ranks := Ranks.joined():
            run = _train_together(
                ranks, config, data, callbacks, out=out, resume=resume, threads=threads, memory=memory
            )
        else:
            check_folder(out, config, resume)
            if out is not None and (out / "config.json").exists() and RunFolder.open(out).result:
                run = Run.open(out, data=data)
            else:
                training = Training(config, data, threads, device, memory=memory, callbacks=callbacks)
                with torch_threads(threads), memory_given_back():
                    if memory is not None:
                        plan_of(training, memory, threads).check()
                    about = environment(threads, device)
                    run = training.run(_folder(out, config, data, resume, about), stop)
    except BaseException as error:
        for each in callbacks:
            each.on_failure(error)
        raise
    for each in callbacks:
        each.on_end(run)
    return run


def _train_together(
    ranks: Ranks,
    config: RunConfig,
    data: Interactions,
    callbacks: Sequence[Callback],
    *,
    out: Path | None,
    resume: bool,
    threads: int,
    memory: int | None,
) -> Run:
    """This rank's part of a run. The first rank writes the folder, and all ranks open it at the end.

    A rank that was lost is started again together with all others; then the run resumes by itself.
    """
    if out is None:
        raise ConfigError("several workers need a folder for the run", "give --out")
    first, restarted = ranks.rank == 0, int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0
    folder = None
    if first:
        check_folder(out, config, resume or restarted)
        folder = _folder(out, config, data, True, environment(threads, "cpu"))
    ranks.wait()
    if RunFolder.open(out).result is None:
        heard = callbacks if first else ()
        training = Training(config, data, threads or 1, "cpu", ranks=ranks, memory=memory, callbacks=heard)
        with torch_threads(threads or 1):
            training.run(folder, None, read=RunFolder.open(out))
    ranks.wait()
    return Run.open(out, data=data)


def plan(
    config: RunConfig, data: Interactions, *, threads: int = 0, device: str = "cpu", memory: int | None = None
) -> RunPlan:
    """Estimate what `train` would take with the same arguments, and train nothing."""
    training = Training(config.resolved(), data, threads, device, memory=memory)
    with torch_threads(threads):
        return plan_of(training, memory, threads)


def validate_rounds(
    config: RunConfig,
    data: Interactions,
    *,
    threads: int = 0,
    callbacks: Sequence[Callback] = (),
    stop: threading.Event | None = None,
) -> list[RoundEntry]:
    """The history of a run that never uses the test items, for choosing settings."""
    training = Training(config.resolved(), data, threads, "cpu", callbacks=callbacks, tests=False)
    with torch_threads(threads), memory_given_back():
        training.rounds(None, stop)
    return training.history


def check_folder(out: Path | None, config: RunConfig, resume: bool) -> None:
    """Refuse a folder that holds another run, before data are loaded."""
    if out is None or not (out / "config.json").exists():
        return
    folder = RunFolder.open(out)
    if difference := config.difference(folder.config):
        raise RunError(f"{out} contains another run: {difference}", "give another --out")
    if not resume:
        finished = folder.result is not None
        raise RunError(
            f"{out} contains {'this' if finished else 'an unfinished'} run already",
            "give another --out" if finished else "give --resume to continue it, or another --out",
        )


def _folder(
    out: Path | None, config: RunConfig, data: Interactions, resume: bool, about: dict[str, Any]
) -> RunFolder | None:
    if out is None:
        return None
    known = resume and (out / "config.json").exists()
    folder = RunFolder.open(out) if known else RunFolder.create(out, config, about)
    if data.origin is None:
        folder.keep_data(data)
    return folder


class Training:
    """A run in progress."""

    def __init__(
        self,
        config: RunConfig,
        data: Interactions,
        threads: int,
        device: str,
        *,
        ranks: Ranks | None = None,
        memory: int | None = None,
        callbacks: Sequence[Callback] = (),
        tests: bool = True,
    ) -> None:
        """`config` is resolved. With `memory`, chunks are small enough for so many bytes, if they can be.

        Without `tests`, no state is kept beside the last.
        """
        self.ranks, self.callbacks, self._tests = ranks, callbacks, tests
        self.config, self.method = config, config.built
        self._ends = [*([Patience(config.patience)] if config.patience else []), *callbacks]
        self.protocol = get(config.protocol)
        self.split = split(data, config.protocol)
        self.evaluator = Evaluator(
            self.split,
            config.seed,
            config.cutoffs,
            validated=config.evaluate_users or VALIDATED,
            chunk=CHUNK if memory is None else min(CHUNK, memory // _OF_SCORES),
            threads=threads,
        )
        self._validated = self.evaluator.users("validation")
        self.simulation = federation(
            config,
            self.method,
            clients_of(self.split),
            threads,
            device,
            ranks=ranks,
            memory=memory,
            attributes=data.attributes,
        )
        if ranks:
            self.evaluator.restrict(self.simulation.share.clients)
        if isinstance(self.simulation, OneRound):
            self.simulation.on_clients = self._on_clients
        self.history: list[RoundEntry] = []
        self.best: State | Solution = self.simulation.state
        self.best_round = 0
        self.folder: RunFolder | None = None
        self._saved_at, self._saving_took = time.perf_counter(), 0.0
        self._warned = False

    def _on_clients(self, done: int, clients: int) -> None:
        for each in self.callbacks:
            each.on_clients(done, clients)

    def _on_users(self, done: int, users: int) -> None:
        for each in self.callbacks:
            each.on_users(done, users)

    def run(
        self, folder: RunFolder | None, stop: threading.Event | None, read: RunFolder | None = None
    ) -> Run:
        """Train from the checkpoint in `read`, by default that of `folder`, to the end."""
        place = read or folder
        checkpoint = place.read_checkpoint() if place else None
        if self.ranks:
            self.ranks.wait()
        if checkpoint:
            self._restore(checkpoint)
        if folder:
            folder.begin_history(self.history)
        self.rounds(folder, stop)
        return self._finish(folder)

    def rounds(self, folder: RunFolder | None, stop: threading.Event | None) -> None:
        """Train until the last round, or until a callback ends it: patience is one."""
        self.folder = folder
        for each in self.callbacks:
            each.on_start(self)
        with nullcontext(stop) if stop else interruptible(_say_stopping) as interrupted:
            while not self._done():
                number = len(self.history)
                for each in self.callbacks:
                    each.before_round(number)
                self._round(number)
                if self.simulation.share.any(interrupted.is_set()):
                    interrupted.set()
                for each in self.callbacks:
                    each.after_round(Progress(number + 1, self.config.rounds, self.history[-1]))
                if folder:
                    folder.add_round(self.history[-1])
                self._save(folder, now=interrupted.is_set())
                if interrupted.is_set() and not self._done():
                    raise _stopped_error(number + 1, self.config.rounds, folder)

    def _done(self) -> bool:
        ended = self.simulation.share.any(any(each.is_done(self) for each in self._ends))
        return ended or len(self.history) >= self.config.rounds

    def _round(self, number: int) -> None:
        before = self._own_parameters(number)
        start = time.perf_counter()
        trained = self.simulation.run_round(number)
        middle = time.perf_counter()
        self._warn_if_still(number, before)
        due = (number + 1) % self.config.evaluate_every == 0 or number + 1 == self.config.rounds
        validation = self._of_all(self.evaluator.validation(self._score("validation"))) if due else None
        seconds = RoundSeconds(
            train=middle - start,
            evaluate=time.perf_counter() - middle,
            server=trained.seconds_on_server,
        )
        value = validation.selected(self.protocol, self.config.metric) if validation else None
        # Under differential privacy the last round is used: selecting a round would look at data.
        if self.config.dp or self._is_best(value):
            self.best_round = number
            if self._tests:
                self.best = self.simulation.state.copy()
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

    def _own_parameters(self, number: int) -> list[Tensor]:
        """What some of the round's clients have of their own, but for tables."""
        if self._warned or not isinstance(self.simulation, Simulation) or self.ranks:
            return []
        clients = torch.from_numpy(self.simulation.choose(number)[:_WATCHED])
        return [values[clients] for values in self.simulation.state.personal.whole.values()]

    def _warn_if_still(self, number: int, before: list[Tensor]) -> None:
        """Say so where hardly any client has moved: such a run goes on at its price and learns nothing."""
        if not before:
            return
        after = self._own_parameters(number)
        moved = torch.stack([(a != b).flatten(1).any(1) for a, b in zip(before, after, strict=True)]).any(0)
        share = float(moved.float().mean())
        if len(moved) and share <= _STILL:
            self._warned = True
            _LOG.warning(
                "in round %d the parameters of only %.1f %% of the clients moved, so it hardly learns; "
                "a lower learning_rate may help",
                number + 1,
                100 * share,
            )

    def _is_best(self, value: float | None) -> bool:
        if value is None:
            return False
        best = self.history[self.best_round].selection if self.history else None
        return best is None or value > best

    def _sampled(self, validation: Evaluation | None) -> dict[str, Any]:
        """Of a validation on a sample of users: how many, and the interval of the selecting metric."""
        users = self._validated
        if validation is None or users == np.count_nonzero(self.split.validation.lengths):
            return {}
        low, high = validation.interval(self.protocol, self.config.metric)
        return {"validated": users, "interval": (low, high)}

    def _finish(self, folder: RunFolder | None) -> Run:
        self.simulation.state = self.best
        asked, seconds = tests_of(self.simulation, self.split, self.best_round + 1), []

        def evaluate(score: Score) -> Evaluation:
            start = time.perf_counter()
            evaluation = self._of_all(self.evaluator.test(score, self._on_users))
            seconds.append(time.perf_counter() - start)
            return evaluation

        tests = asked.evaluated(self.split, evaluate, both=self.both_tests)
        chosen = self.history[self.best_round]
        assert chosen.validation is not None  # the last round always has one
        sent = [entry.bytes for entry in self.history]
        result = RunResult.of(
            self.config.full_method,
            self.split,
            self.config.seed,
            tests=tests,
            refresh=asked.refresh,
            **self._test_with_time(),
            validation=chosen.validation,
            rounds=len(self.history),
            selected_round=chosen.round,
            seconds_per_round=float(np.median([entry.seconds.train for entry in self.history])),
            seconds_to_test=seconds[0],
            peak_bytes=peak_bytes(),
            bytes=Bytes(up=float(np.mean([b.up for b in sent])), down=float(np.mean([b.down for b in sent]))),
            options=self.config.options,
            precision=self.config.precision,
            secure_aggregation=self.config.secure_aggregation,
            upload=self.config.upload,
            download=self.config.download,
            privacy=self.config.statement(self.method),
        )
        saved = self._saved(self.best) if folder or self.ranks else None
        if folder and saved:
            folder.finish(result, saved)
        path = folder.path if folder else None
        return Run(result, self.split.data, self.simulation, path, self.history)

    @property
    def both_tests(self) -> bool:
        """Whether test items are ranked with and without the validation item in the model."""
        few = int(np.count_nonzero(self.split.test.lengths)) <= BOTH_UP_TO
        asked = self.config.both_tests
        return not self.protocol.leaky and (few if asked is None else asked)

    def _test_with_time(self) -> dict[str, Any]:
        """The figures of a method that reads the time of the request. No other test tells it."""
        if not (self.method.one_round and self.method.reads_request_time):
            return {}
        told = self._of_all(
            self.evaluator.test(self.simulation.serve(when_asked(self.split)), self._on_users)
        )
        return {"test_request_time": Tested.of(told)}

    def _score(self, part: Part) -> Score:
        return self.simulation.serve(history(self.split, part))

    def _of_all(self, own: Evaluation) -> Evaluation:
        return together(self.ranks, own) if self.ranks else own

    def _saved(self, state: State | Solution) -> StateToSave:
        """A state as it is saved, that of all ranks."""
        if self.ranks and isinstance(state, State):
            return StateToSave(*self.simulation.share.gathered(*state.tensors(), self.method.tailored))
        return StateToSave(*state.writable())

    def _save(self, folder: RunFolder | None, *, now: bool) -> None:
        start = time.perf_counter()
        due = now or start - self._saved_at >= max(_LEAST_SECONDS, _COST * self._saving_took)
        if self.ranks:
            due = self.ranks.any(due and self.ranks.rank == 0)
        if not due or (folder is None and self.ranks is None):
            return
        progress = RunProgress(
            rounds_done=len(self.history), best_round=self.best_round, history=tuple(self.history)
        )
        states = (self._saved(state) for state in (self.simulation.state, self.best))
        if folder:
            folder.write_checkpoint(progress, states)
        else:  # the first rank writes; what this one has goes there
            deque(states, maxlen=0)
        self._saved_at = time.perf_counter()
        self._saving_took = self._saved_at - start

    def _restore(self, checkpoint: Checkpoint) -> None:
        self.simulation.restore(checkpoint.best.shared, checkpoint.best.personal)
        self.best = self.simulation.state.copy()
        self.simulation.restore(checkpoint.last.shared, checkpoint.last.personal)
        self.history = list(checkpoint.progress.history)
        self.best_round = checkpoint.progress.best_round


def together(ranks: Ranks, own: Evaluation) -> Evaluation:
    """The evaluation of all ranks' users, on every rank."""
    rankings = _joined(ranks, own.full_ranking), _joined(ranks, own.sampled99_ranking)
    if own.warm_ranking is None or own.lists is None:
        return Evaluation(*rankings)
    lists = own.lists.joined(zip(*_gathered(ranks, *own.lists.part), strict=True))
    return Evaluation(*rankings, _joined(ranks, own.warm_ranking), lists)


def _joined(ranks: Ranks, own: Ranking) -> Ranking:
    gathered = _gathered(ranks, own.users, own.counts, own.places)
    users, counts, places = (np.concatenate(each) for each in gathered)
    order = np.argsort(users)
    rows = Ragged.of_lengths(counts, np.arange(len(places))).take(order)
    return Ranking(users[order], rows.lengths, places[rows.values], own.cutoffs)


def _gathered(ranks: Ranks, *own: NDArray[Any]) -> Iterator[list[NDArray[Any]]]:
    """Every array, as all ranks have it."""
    parts = ranks.gathered({str(number): torch.tensor(each) for number, each in enumerate(own)})
    return ([part[str(number)].numpy() for part in parts] for number in range(len(own)))


@contextmanager
def interruptible(on_wish: Callable[[], None] = lambda: None) -> Iterator[threading.Event]:
    """Turn the first Ctrl-C into a request to stop. The second one stops at once."""
    wish = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield wish
        return
    before = signal.getsignal(signal.SIGINT)

    def first(*_: object) -> None:
        wish.set()
        on_wish()
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, first)
    try:
        yield wish
    finally:
        signal.signal(signal.SIGINT, before)


def _say_stopping() -> None:
    _LOG.warning("stopping after this round; press Ctrl-C again to stop at once")


def _stopped_error(done: int, rounds: int, folder: RunFolder | None) -> StoppedError:
    hint = "give the same command again with --resume" if folder else "give --out to be able to resume"
    return StoppedError(f"stopped after round {done} of {rounds}", hint)
