"""A cost model: every figure of a run is a sum of unit costs times sizes, fitted to a method's records.

    local training    core seconds of a round = a · clients · training items · d + b · clients · items
                                                + c · items · d
    server            seconds of a round      = a · items · d
    evaluation        core seconds of a user  = a · items + b
    start and end     seconds                 = a + b · interactions + c · items · d + e, if several ranks
    memory of a rank  bytes                   = a + b · items · d
                                                + (c · users + e · kept + f · trained) / ranks
    clients' state    bytes                   = a · users + b · kept + c · trained
    up                bytes of a client       = a · touched rows · d + b
    down              bytes of a client       = a · items · d + b

Here d is the embedding size, `trained` the training items · d of all clients in all rounds, and `kept` the
same with every client counted once. Closed forms have items² where their sums and their solution have it, and
no d.

Coefficients are not negative. They are found by least squares of the relative errors, so that small points
count as much as large ones. The first term is always used. A further one must halve the squared errors: a
term that only follows the noise of small points would be far off at large ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from solera.core.errors import RunError
from solera.core.types import Floats
from solera.runs.plan import touched_rows
from solera_research.scale.points import INTERACTIONS
from solera_research.scale.records import ScaleRecord, size_of

_BETTER = 0.5  # share of the squared errors that a further term may leave
_ENOUGH = 1e-7  # squared relative errors that need no further term: 0.03 %
_NEGATIVES = 4  # drawn for every training item, the default of all methods
Terms = dict[str, float]


@dataclass(frozen=True)
class Size:
    """A run whose cost is asked for."""

    users: float
    items: float
    clients: float  # in a round
    rounds: int = 10
    ranks: int = 1
    threads: int = 1
    embedding_size: int = 32
    training_items: float = INTERACTIONS - 2.0  # of a user
    solved: bool = False

    @property
    def cores(self) -> int:
        """Cores of all ranks."""
        return self.ranks * self.threads

    @property
    def table(self) -> float:
        """Numbers in a table of item vectors."""
        return self.items * self.embedding_size

    @property
    def took_part(self) -> float:
        """Clients that were chosen in at least one round, expected."""
        return self.users * (1 - (1 - min(1.0, self.clients / self.users)) ** self.rounds)

    @property
    def kept(self) -> float:
        """Numbers in rows for the training items of all who took part."""
        return self.took_part * self.training_items * self.embedding_size

    @property
    def trained(self) -> float:
        """The same, with a client counted in every round in which it took part."""
        return self.rounds * self.clients * self.training_items * self.embedding_size

    @property
    def touched(self) -> float:
        """Numbers in the rows that a client trains in a round: of its items and of distinct negatives."""
        rows = touched_rows(self.training_items, self.items, _NEGATIVES)
        return float(rows) * self.embedding_size

    @classmethod
    def of(cls, record: ScaleRecord) -> Size:
        """The size of a measured point."""
        point, world = record.point, record.world
        return cls(
            users=world.users,
            items=world.items,
            clients=min(point.clients, world.users),
            rounds=point.rounds,
            ranks=point.ranks,
            threads=point.threads,
            embedding_size=record.embedding_size,
            training_items=world.training_items,
            solved=point.solved,
        )


def terms(size: Size) -> dict[str, Terms]:
    """The terms of every figure. Evaluation is of one user."""
    start = {
        "fixed": 1.0,
        "interaction": size.users * (size.training_items + 2),
        "table number": size.table,
        "several ranks": float(size.ranks > 1),
    }
    memory = {"fixed": 1.0, "table number": size.table, "client": size.users / size.ranks}
    if size.solved:
        pairs = size.items**2
        return {
            "local": {
                "client × training item": size.users * size.training_items,
                "client × training item²": size.users * size.training_items**2,
            },
            "server": {"item": size.items, "item²": pairs},
            "evaluation": {"item": size.items, "user": 1.0},
            "start": start,
            "memory": memory | {"item²": pairs},
            "state": {"client": size.users},
            "up": {"fixed": 1.0},
            "down": {"table number": size.table, "item²": pairs},
        }
    return {
        "local": {
            "client × training item × d": size.clients * size.training_items * size.embedding_size,
            "client × item": size.clients * size.items,
            "table number": size.table,
        },
        "server": {"table number": size.table},
        "evaluation": {"item": size.items, "user": 1.0},
        "start": start,
        "memory": memory
        | {"kept number": size.kept / size.ranks, "trained number": size.trained / size.ranks},
        "state": {"client": size.users, "kept number": size.kept, "trained number": size.trained},
        "up": {"touched number": size.touched, "fixed": 1.0},
        "down": {"table number": size.table, "fixed": 1.0},
    }


def measured(record: ScaleRecord) -> dict[str, float]:
    """The figures that the terms are fitted to."""
    seconds, cores = record.seconds, record.point.cores
    return {
        "local": max(0.0, seconds.train - seconds.server) * cores,
        "server": seconds.server,
        "evaluation": (seconds.test + seconds.validation) * cores / (record.tested + record.validated),
        "start": seconds.rest,
        "memory": float(record.peak_bytes),
        "state": float(record.kept_bytes),
        "up": record.bytes_up,
        "down": record.bytes_down,
    }


@dataclass(frozen=True)
class CostModel:
    """The unit costs of one method: of every figure, the coefficient of each term."""

    method: str
    solved: bool
    embedding_size: int
    costs: Mapping[str, Terms]
    points: int  # that it was fitted to

    def figures(self, size: Size) -> dict[str, float]:
        """Every figure of a run of that size. `evaluation` is of one user."""
        asked = replace(size, solved=self.solved)
        if self.solved:
            asked = replace(asked, clients=size.users, rounds=1, ranks=1, embedding_size=1)
        of_size = terms(asked)
        return {
            figure: sum(cost * of_size[figure][term] for term, cost in costs.items())
            for figure, costs in self.costs.items()
        }


def fit(records: Sequence[ScaleRecord]) -> CostModel:
    """The unit costs of one method from its records."""
    if not records:
        raise RunError("there are no records to fit", "make some with `solera bench scale`")
    wanted = [measured(record) for record in records]
    given = [terms(Size.of(record)) for record in records]
    costs = {
        figure: coefficients([each[figure] for each in given], [each[figure] for each in wanted])
        for figure in given[0]
    }
    point = records[0].point
    return CostModel(point.label, point.solved, records[0].embedding_size, costs, len(records))


def models(records: Sequence[ScaleRecord]) -> dict[str, CostModel]:
    """A model of every method that has records."""
    labels = dict.fromkeys(record.point.label for record in records)
    return {label: fit([each for each in records if each.point.label == label]) for label in labels}


def coefficients(given: Sequence[Terms], wanted: Sequence[float]) -> Terms:
    """Coefficients ≥ 0 with the least squared relative errors.

    All sets of terms that contain the first one are tried, small sets first.
    """
    names = list(given[0])
    values = np.array([[each[name] for name in names] for each in given])
    target = np.array(wanted)
    known = target > 0
    if not known.any():
        return dict.fromkeys(names[:1], 0.0)
    rows, ones = values[known] / target[known, None], np.ones(int(known.sum()))
    best: tuple[float, tuple[int, ...], Floats] | None = None
    for count in range(1, min(len(names), len(ones)) + 1):
        for further in combinations(range(1, len(names)), count - 1):
            chosen = (0, *further)
            part = rows[:, chosen]
            scale = np.linalg.norm(part, axis=0)
            if not scale.all():
                continue
            found, _, rank, _ = np.linalg.lstsq(part / scale, ones, rcond=1e-9)
            if rank < count or (found < 0).any():
                continue
            left = (part / scale) @ found - ones
            error = float(left @ left)
            limit = np.inf if best is None else best[0] * (_BETTER if count > len(best[1]) else 1.0)
            if error < limit and (best is None or best[0] > _ENOUGH):
                best = (error, chosen, found / scale)
    assert best is not None  # one positive term alone always has a solution
    _, chosen, found = best
    return {names[at]: float(cost) for at, cost in zip(chosen, found, strict=True)}


@dataclass(frozen=True)
class Check:
    """What a model that did not see the largest point says of it."""

    record: ScaleRecord
    points: int
    predicted: Mapping[str, float]
    measured: Mapping[str, float]


def check(records: Sequence[ScaleRecord]) -> Check | None:
    """Fit one method without its largest point, and predict that. None with fewer than three points."""
    ordered = sorted(records, key=lambda each: size_of(each.point))
    if len(ordered) < 3:
        return None
    largest = ordered[-1]
    fitted_to = [each for each in ordered if size_of(each.point)[0] < size_of(largest.point)[0]]
    if not fitted_to:
        return None
    model = fit(fitted_to)
    return Check(
        largest,
        len(fitted_to),
        of_run(model.figures(Size.of(largest)), Size.of(largest), largest.tested + largest.validated),
        of_run(measured(largest), Size.of(largest), largest.tested + largest.validated),
    )


def of_run(figures: Mapping[str, float], size: Size, ranked: float) -> dict[str, float]:
    """Figures of a whole run as people ask for them, with `ranked` users validated and tested."""
    a_round = figures["local"] / size.cores + figures["server"]
    evaluation = figures["evaluation"] * ranked / size.cores
    return {
        "seconds of a round": a_round,
        "seconds of evaluation": evaluation,
        "seconds in all": figures["start"] + size.rounds * a_round + evaluation,
        "bytes of memory": figures["memory"],
        "bytes up": figures["up"],
        "bytes down": figures["down"],
    }
