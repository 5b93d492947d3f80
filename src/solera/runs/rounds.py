"""The rounds of a run: train, validate, select, save checkpoints, and test at the end."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor

from solera.core.closed_form import ClosedForm
from solera.core.errors import RunError
from solera.core.federated import AnyMethod
from solera.core.item_slices import ItemSlices
from solera.data.attributes import item_attributes
from solera.data.interactions import Interactions
from solera.data.ragged import Ragged
from solera.data.split import Part, history, when_asked
from solera.engine import Simulation, Solution, State
from solera.engine.distributed import DistributedSimulation
from solera.engine.distributed_sums import DistributedOneRound
from solera.engine.ranks import Ranks
from solera.evaluate import Evaluation, Evaluator, OnUsers, Score, get, split
from solera.evaluate.ranking import CHUNK
from solera.runs.config import TWICE_UP_TO, VALIDATED, RunConfig
from solera.runs.environment import peak_bytes
from solera.runs.federation import clients_of, federation
from solera.runs.folder import Checkpoint, RunFolder, RunProgress, StateToSave
from solera.runs.histories import second_test
from solera.runs.interrupt import interruptible
from solera.runs.progress import Progress
from solera.runs.result import Bytes, Rankings, RoundEntry, RoundSeconds, RunResult, Tested
from solera.runs.run import Run
from solera.runs.together import together

if TYPE_CHECKING:
    from solera.engine.sharded import ShardedSimulation

_LOG = logging.getLogger(__name__)
_WATCHED = 1_000  # of the round's clients, to see whether they still move
_STILL = 0.05  # of them, up to which training has stopped
_OF_SCORES = 200  # bytes of memory for every score that is computed at a time
_LEAST_SECONDS = 2.0  # minimum time between checkpoints,
_COST = 20  # and at least this many times the time of the last one: about 5 % of the time at most


class StoppedError(RunError):
    """The run was interrupted and can be resumed."""

    exit_code = 130


class Training:
    """A run in progress."""

    def __init__(
        self,
        config: RunConfig,
        method: AnyMethod,
        data: Interactions,
        threads: int,
        device: str,
        *,
        ranks: Ranks | None = None,
        memory: int | None = None,
        shard_tables: bool = False,
    ) -> None:
        """With `memory`, chunks are small enough for so many bytes, as far as they can be.

        With `shard_tables`, every rank holds some rows of item tables.
        """
        self.ranks = ranks
        self.config, self.method = config, method
        self.protocol = get(config.protocol)
        self.split = split(data, config.protocol)
        self.evaluator = Evaluator(
            self.split,
            config.seed,
            config.at,
            validated=config.evaluate_users or VALIDATED,
            chunk=CHUNK if memory is None else min(CHUNK, memory // _OF_SCORES),
            threads=threads,
        )
        self._validated = self.evaluator.users("validation")
        self.simulation = federation(
            config,
            method,
            clients_of(self.split),
            threads,
            device,
            ranks=ranks,
            memory=memory,
            shard_tables=shard_tables,
            attributes=item_attributes(data),
        )
        self._sharded = cast("ShardedSimulation", self.simulation) if shard_tables else None
        if isinstance(self.simulation, DistributedSimulation | DistributedOneRound):
            self.evaluator.restrict(self.simulation.share.clients)
        self.history: list[RoundEntry] = []
        self.best: State | Solution = self.simulation.state
        self.best_round = 0
        self._saved_at, self._saving_took = time.perf_counter(), 0.0
        self._warned = False

    def run(
        self,
        folder: RunFolder | None,
        on_round: Callable[[Progress], None] | None,
        stop: threading.Event | None,
        read: RunFolder | None = None,
        on_users: OnUsers | None = None,
    ) -> Run:
        """Train from the checkpoint in `read`, by default that of `folder`, to the end.

        `on_users` hears of the users that have been tested, and of their number.
        """
        place = read or folder
        rows = self._sharded.rows_held if self._sharded else None
        checkpoint = place.read_checkpoint(rows) if place else None
        if self.ranks:
            self.ranks.wait()
        if checkpoint:
            self._restore(checkpoint)
        if folder:
            folder.begin_history(self.history)
        self.rounds(folder, on_round, stop)
        return self._finish(folder, on_users)

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
                self._agree(interrupted)
                if on_round:
                    on_round(Progress(len(self.history), self.config.rounds, self.history[-1]))
                if folder:
                    folder.add_round(self.history[-1])
                self._save(folder, now=interrupted.is_set())
                if interrupted.is_set() and not self._done():
                    raise _stopped_error(len(self.history), self.config.rounds, folder)

    def _agree(self, interrupted: threading.Event) -> None:
        """Stop all ranks if one is to stop."""
        if self.ranks and self.ranks.any(interrupted.is_set()):
            interrupted.set()

    def _done(self) -> bool:
        done, patience = len(self.history), self.config.patience
        chosen = done > 0 and self.history[self.best_round].selection is not None
        tired = patience is not None and chosen and done - 1 - self.best_round >= patience
        return tired or done >= self.config.rounds

    def _round(self, number: int) -> None:
        before = self._own_parameters(number)
        start = time.perf_counter()
        trained = self.simulation.run_round(number)
        middle = time.perf_counter()
        self._warn_if_still(number, before)
        due = (number + 1) % self.config.evaluate_every == 0 or number + 1 == self.config.rounds
        validation = self._together(self.evaluator.validation(self._score("validation"))) if due else None
        seconds = RoundSeconds(
            train=middle - start,
            evaluate=time.perf_counter() - middle,
            server=trained.seconds_on_server,
        )
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
        low, high = validation.interval(self.protocol, self.config.select_by)
        return {"validated": users, "interval": (low, high)}

    def _finish(self, folder: RunFolder | None, on_users: OnUsers | None) -> Run:
        self.simulation.state = self.best
        start = time.perf_counter()
        test = self._together(self.evaluator.test(self._score("test"), on_users))
        seconds_to_test = time.perf_counter() - start
        both = self._second_test(test, on_users) | self._test_with_time(on_users)
        chosen = self.history[self.best_round]
        assert chosen.validation is not None  # the last round always has one
        sent = [entry.bytes for entry in self.history]
        result = RunResult.of(
            self.config.full_method,
            self.split,
            self.config.seed,
            test=test,
            **both,
            validation=chosen.validation,
            rounds=len(self.history),
            selected_round=chosen.round,
            seconds_per_round=float(np.median([entry.seconds.train for entry in self.history])),
            seconds_to_test=seconds_to_test,
            peak_bytes=peak_bytes(),
            bytes=Bytes(up=float(np.mean([b.up for b in sent])), down=float(np.mean([b.down for b in sent]))),
            options=self.config.options,
            engine=self.config.engine,
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
    def tests_twice(self) -> bool:
        """Whether there is a second test. Leaky figures are compared with published ones, which have one."""
        few = int(np.count_nonzero(self.split.test.lengths)) <= TWICE_UP_TO
        return not self.protocol.leaky and (few if self.config.test_twice is None else self.config.test_twice)

    def _second_test(self, first: Evaluation, on_users: OnUsers | None) -> dict[str, Any]:
        """The figures of both histories."""
        if not self.tests_twice:
            return {}
        asked = second_test(self.simulation, self.split, self.best_round + 1, self._serve)
        score = asked.score() if asked.score else None
        return asked.figures(first, self._together(self.evaluator.test(score, on_users)) if score else None)

    def _test_with_time(self, on_users: OnUsers | None) -> dict[str, Any]:
        """The figures of a method that reads the time of the request. No other test tells it."""
        if not (isinstance(self.method, ClosedForm) and self.method.reads_request_time):
            return {}
        told = self._together(self.evaluator.test(self._serve(when_asked(self.split)), on_users))
        return {"test_request_time": Tested.of(told)}

    def _score(self, part: Part) -> Score | ItemSlices:
        return self._serve(history(self.split, part))

    def _serve(self, known: Ragged) -> Score | ItemSlices:
        """Scores for users with these histories."""
        return self._sharded.slices(known) if self._sharded else self.simulation.serve(known)

    def _together(self, own: Evaluation) -> Evaluation:
        return together(self.ranks, own) if self.ranks else own

    def _saved(self, state: State | Solution) -> StateToSave:
        """A state as it is saved, that of all ranks."""
        if isinstance(self.simulation, DistributedSimulation):
            return StateToSave(*self.simulation.gathered(*state.tensors()))
        return StateToSave(*state.writable())

    def _kept(self, state: State | Solution) -> StateToSave:
        """A state for a checkpoint: rows that an earlier checkpoint has are not written again."""
        if self.ranks or isinstance(state, Solution):
            return self._saved(state)
        personal = state.personal
        return StateToSave(state.shared | state.memory, personal.without_rows, personal.rows)

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
        states = (self._kept(state) for state in (self.simulation.state, self.best))
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


def _say_stopping() -> None:
    _LOG.warning("stopping after this round; press Ctrl-C again to stop at once")


def _stopped_error(done: int, rounds: int, folder: RunFolder | None) -> StoppedError:
    hint = "give the same command again with --resume" if folder else "give --out to be able to resume"
    return StoppedError(f"stopped after round {done} of {rounds}", hint)
