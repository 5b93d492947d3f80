"""What differential privacy costs by the number of users: compact FedSLIST, a record per point.

    python research/experiments/privacy_size.py experiments/records/privacy-size ml-1m 1e3 1e4 1e5x3000

A number stands for the synthetic world of so many users (`solera data synthesize`, seed 0), with 1,000 items
unless their number follows. A point that has
a record is not computed again. Settings are chosen for every point by HR@10 on the validation items, before
the test items are ranked, once. δ is the smaller of 1e-5 and users^−1.1.

All clients' contributions are added up at once here, which is faster than one by one; `check` compares some
of them with what the method sends and clips.
"""

from __future__ import annotations

import math
import sys
import time
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from solera.core.closed_form import ClosedForm
from solera.core.types import Floats, Ints
from solera.data.datasets import load
from solera.data.interactions import history
from solera.data.ragged import Ragged, ages
from solera.data.synthetic import World
from solera.dp.accounting import Releases
from solera.dp.mechanism import Clip
from solera.dp.noise import Seeded
from solera.dp.one_round import PrivateSum
from solera.dp.settings import DP
from solera.evaluate import split
from solera.methods import find
from solera.runs.environment import check_committed
from solera.study.records import Store
from solera_research.records import Measured

ITEMS, PER_USER = 1000, 30  # of a synthetic world
EPSILONS = (math.inf, 8.0, 4.0, 1.0)
CLIP = 4.0  # nearly every history is longer, so that nearly all count alike
# Ridges, thresholds and popularity priors that are tried; without noise, ridges alone.
GRID = (30.0, 300.0), (0.0, 3.5), (0.0, 0.3)
GRIDS = {"ml-1m": ((1.0, 10.0), (2.0, 3.5), (0.3,)), "1e6": ((30.0,), (0.0, 3.5), (0.0,))}
DECAY = 0.6
RANKED = 5000  # users, of whom items are ranked
USERS_AT_A_TIME = 200_000
UNCLIPPED = 1e9  # longer than any contribution
_FADED = 1e-4  # weights of pairs below this are left out


@dataclass(frozen=True)
class Data:
    """Histories, and the last two items of some users."""

    name: str
    n_items: int
    train: Ragged
    some: Ints  # users whose items are ranked
    before: tuple[Ragged, Ragged]  # what is known of them for validation and for the test
    wanted: tuple[Ints, Ints]

    @classmethod
    def of(cls, name: str) -> Data:
        """A data set, or a world of so many users, without the last two items of everybody."""
        draw = np.random.default_rng(0)
        if not name[0].isdigit():
            parts = split(load(name), "strict")
            able = np.flatnonzero((parts.validation.lengths == 1) & (parts.test.lengths == 1))
            some = np.sort(draw.permutation(able)[:RANKED])
            before = history(parts, "validation", some), history(parts, "test", some)
            wanted = parts.validation.take(some).values, parts.test.take(some).values
            return cls(name, parts.data.n_items, parts.train, some, before, wanted)
        users, items = (int(float(number)) for number in f"{name}x{ITEMS}".split("x")[:2])
        whole = World(users, items, PER_USER * users).histories(np.arange(users))
        some = np.sort(draw.permutation(users)[:RANKED])
        ends = whole.offsets[1:][some]
        before = without_last(whole.take(some), 2), without_last(whole.take(some), 1)
        wanted = whole.values[ends - 2], whole.values[ends - 1]
        return cls(name, items, without_last(whole, 2), some, before, wanted)

    @property
    def users(self) -> int:
        """How many users take part."""
        return len(self.train)

    @cached_property
    def delta(self) -> float:
        """δ of all points."""
        return min(1e-5, self.users**-1.1)


@dataclass(frozen=True)
class Setting:
    """What is chosen on validation items."""

    decay: float
    clip: float
    ridge: float
    threshold: float
    prior: float

    @property
    def method(self) -> ClosedForm:
        """Compact FedSLIST."""
        options = {"compact": True, "decays": (self.decay,), "horizon": 1, "ridge": self.ridge}
        options["popularity_prior"] = self.prior
        method = find("fedslist", options)
        assert isinstance(method, ClosedForm)
        return method


def without_last(histories: Ragged, count: int) -> Ragged:
    """Histories without so many of their newest items."""
    place = np.arange(len(histories.values)) - histories.offsets[histories.rows]
    kept = place < histories.lengths[histories.rows] - count
    return Ragged.of_lengths(histories.lengths - count, histories.values[kept])


def totals(histories: Ragged, n_items: int, decay: float, clip: float) -> dict[str, Tensor]:
    """T and n over all clients, each clipped. Nobody has an item twice."""
    following, counts = np.zeros(n_items * n_items), np.zeros(n_items)
    reach = max(1, math.ceil(math.log(_FADED) / math.log(decay))) if decay else 1
    weights = decay ** np.arange(reach)
    for begin in range(0, len(histories), USERS_AT_A_TIME):
        part = histories.take(np.arange(begin, min(begin + USERS_AT_A_TIME, len(histories))))
        factor = np.minimum(1.0, clip / np.sqrt(squares(decay)[part.lengths]))[part.rows]
        counts += np.bincount(part.values, factor, n_items)
        for lag, weight in enumerate(weights, start=1):
            same = part.rows[lag:] == part.rows[:-lag]
            pair = part.values[:-lag][same].astype(np.int64) * n_items + part.values[lag:][same]
            following += np.bincount(pair, weight * factor[lag:][same], n_items * n_items)
    return {
        "next": torch.from_numpy(following.reshape(n_items, n_items)),
        "counts": torch.from_numpy(counts[:, None]),
    }


def squares(decay: float, longest: int = 5000) -> Floats:
    """The squared length of a contribution by the number of items: n_u has ones, T_u a^(lag − 1)."""
    length = np.arange(longest)
    sums = np.cumsum(np.cumsum(decay ** (2.0 * length)))  # of lags 1 … L − 1, each L − lag times
    result: Floats = np.maximum(1, length) + np.concatenate([[0.0, 0.0], sums[: longest - 2]])
    return result


def check(data: Data, setting: Setting, users: int = 50) -> None:
    """Compare some contributions with those of the method itself."""
    some = data.train.take(np.arange(min(users, data.users)))
    mine, method = totals(some, data.n_items, setting.decay, setting.clip), setting.method
    expected = {name: torch.zeros_like(each) for name, each in mine.items()}
    for user in range(len(some)):
        part = Clip(setting.clip).contribution(method.update.of(some.row(user)))
        items = torch.from_numpy(part.items.astype(np.int64))
        expected["next"][items[:, None], items] += torch.from_numpy(part.blocks["next"][0, :, 0])
        expected["counts"][items] += torch.from_numpy(part.blocks["counts"][0, :, 0])
    for name, each in mine.items():
        assert torch.allclose(each, expected[name], atol=1e-3), name


def ranks(data: Data, part: int, weights: Tensor, decay: float) -> Ints:
    """Ranks of the wanted items among all that are not in a user's history."""
    known, wanted, found = data.before[part], torch.from_numpy(data.wanted[part].astype(np.int64)), []
    for begin in range(0, len(known), 1000):
        users = np.arange(begin, min(begin + 1000, len(known)))
        rows = known.take(users)
        places = torch.from_numpy(np.stack([rows.rows, rows.values]).astype(np.int64))
        values = torch.from_numpy(np.power(decay, ages(rows)))
        memory = torch.sparse_coo_tensor(places, values.to(weights), (len(users), data.n_items))
        scores = torch.sparse.mm(memory, weights)
        own = scores.gather(1, wanted[users, None])
        scores[places[0], places[1]] = -math.inf
        better, same = (scores > own).sum(1), (scores == own).sum(1) - 1
        found.append((1 + better + same / 2).numpy())
    return np.concatenate(found)


def figures(found: Ints) -> dict[str, float]:
    """HR@10 and NDCG@10 of ranks."""
    hit = found <= 10
    return {
        "hr@10": float(hit.mean()),
        "ndcg@10": float(np.where(hit, 1 / np.log2(1 + found), 0).mean()),
    }


def model(data: Data, setting: Setting, sums: dict[str, Tensor], epsilon: float) -> tuple[Tensor, DP | None]:
    """The solved weights, and the resolved privacy."""
    copies, dp = {name: each.clone() for name, each in sums.items()}, None
    method = setting.method
    if epsilon < math.inf:
        asked = DP(epsilon=epsilon, delta=data.delta, clip=setting.clip, threshold=setting.threshold or None)
        dp = asked.resolved(Releases(1.0, 1))
        PrivateSum(dp, Seeded(0)).release(copies, method.update.sums, data.users)
    copies = {name: each.float() for name, each in copies.items()}
    return method.aggregate.solve(copies), dp  # type: ignore[arg-type, return-value]


def main(table: Path, names: list[str]) -> None:
    """Compute all points that have no record."""
    check_committed(table)
    store = Store(table, Measured)
    for name in names:
        missing = [e for e in EPSILONS if key(name, e) not in store.listed()]
        if missing:
            points(store, Data.of(name), missing)


def points(store: Store[Measured], data: Data, epsilons: list[float]) -> None:
    """Choose a setting for every ε on validation items, and rank the test items with it."""
    sums: dict[float, dict[str, Tensor]] = {}
    for epsilon in epsilons:
        begin, tried = time.perf_counter(), list[tuple[float, Setting, Tensor, DP | None]]()
        for setting in settings(data.name, private=epsilon < math.inf):
            if setting.clip not in sums:
                check(data, setting)
                sums[setting.clip] = totals(data.train, data.n_items, setting.decay, setting.clip)
            weights, dp = model(data, setting, sums[setting.clip], epsilon)
            found = figures(ranks(data, 0, weights, setting.decay))["hr@10"]
            print(f"{data.name} ε={epsilon:g} {setting} {found:.4f}", flush=True)
            tried.append((found, setting, weights, dp))
        found, setting, weights, dp = max(tried, key=lambda each: each[0])
        record = {
            "data": data.name,
            "users": data.users,
            "items": data.n_items,
            "interactions": len(data.train.values),
            "ranked": len(data.some),
            "epsilon": None if dp is None else epsilon,
            "delta": data.delta,
            "noise_multiplier": dp.noise if dp else None,
            "clip": dp.clip if dp else None,
            "threshold": setting.threshold if dp else None,
            "decay": setting.decay,
            "ridge": setting.ridge,
            "popularity_prior": setting.prior,
            "tried": len(tried),
            "validation": {"hr@10": found},
            "test": figures(ranks(data, 1, weights, setting.decay)),
            "seconds": round(time.perf_counter() - begin, 1),
        }
        store.add(Measured(key=key(data.name, epsilon), content=record))
        print(f"{data.name} ε={epsilon:g} test {record['test']}", flush=True)


def settings(name: str, *, private: bool) -> list[Setting]:
    """What is tried for a point."""
    ridges, thresholds, priors = GRIDS.get(name, GRID)
    if not private:
        return [Setting(DECAY, UNCLIPPED, ridge, 0.0, 0.0) for ridge in ridges]
    return [Setting(DECAY, CLIP, *each) for each in product(ridges, thresholds, priors)]


def key(name: str, epsilon: float) -> str:
    """What identifies a point."""
    return f"{name}--eps={epsilon:g}"


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
