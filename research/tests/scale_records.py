"""Records of points that nobody ran, with costs that are known."""

from __future__ import annotations

import math
from collections.abc import Callable

from solera.runs.environment import Code
from solera_research.scale.points import Point
from solera_research.scale.records import Planned, ScaleRecord, Seconds, World

# Unit costs of an imagined method with vectors of 10 numbers, and of its users 18 training items each.
PER_TRAINED = 2e-7  # core seconds for a client's training item and one of its numbers
PER_TABLE_NUMBER_SUMMED = 5e-8
SERVER = 3e-8  # seconds for a number of the table
PER_ITEM_RANKED, PER_USER_RANKED = 4e-9, 1e-4
START, PER_INTERACTION = 6.0, 2e-6
PROGRAM, PER_TABLE_NUMBER, PER_CLIENT, PER_KEPT = 3e8, 40.0, 300.0, 20.0
DOWN, UP = 4.0, 4.0  # bytes: for a number of the table, and for one that a client touches


def record(
    users: int,
    items: int,
    ranks: int = 1,
    threads: int = 2,
    *,
    noise: Callable[[], float] = lambda: 1.0,
    method: str = "fedmf",
) -> ScaleRecord:
    """The point with these sizes, 10 rounds of at most 10,000 clients."""
    clients, rounds, d, m = min(10_000, users // 5), 10, 10, 18.0
    cores = ranks * threads
    point = Point(
        method=method,
        users=users,
        items=items,
        clients=clients,
        rounds=rounds,
        ranks=ranks,
        threads=threads,
        evaluate_users=2000,
        evaluate_every=5,
    )
    server = SERVER * items * d * noise()
    train = (PER_TRAINED * clients * m * d + PER_TABLE_NUMBER_SUMMED * items * d) / cores * noise() + server
    a_user = (PER_ITEM_RANKED * items + PER_USER_RANKED) / cores * noise()
    validated = 2 * 2000
    start = (START + PER_INTERACTION * users * 20) * noise()
    took_part = users * (1 - (1 - clients / users) ** rounds)
    kept = took_part * m * d
    memory = PROGRAM + PER_TABLE_NUMBER * items * d + (PER_CLIENT * users + PER_KEPT * kept) / ranks
    return ScaleRecord(
        point=point,
        world=World(users=users, items=items, interactions=20 * users, training_items=m, popularity=0.02),
        seconds=Seconds(
            wall=start + rounds * train + (users + validated) * a_user,
            train=train,
            server=server,
            training=rounds * train,
            validation=validated * a_user,
            test=users * a_user,
        ),
        validated=validated,
        tested=users,
        peak_bytes=round(memory * noise()),
        peak_of_all=round(ranks * memory),
        bytes_up=UP * d * (m + (items - m) * (1 - math.exp(-4 * m / (items - m)))),
        bytes_down=DOWN * items * d,
        kept_bytes=round(4 * d * users + 5 * 4 * kept),
        embedding_size=d,
        ndcg=0.05,
        plan=Planned(bytes=round(memory), seconds=100.0) if ranks == 1 else None,
        command="solera train fedmf",
        environment={"cores": 2},
        code=Code(),
    )


SIZES = [(10_000, 10**5), (10**5, 10**4), (10**5, 10**5), (10**6, 10**5)]


def some(method: str = "fedmf", noise: Callable[[], float] = lambda: 1.0) -> list[ScaleRecord]:
    """All points of a method as `solera bench scale` measures them."""
    return [record(users, items, method=method, noise=noise) for users, items in SIZES] + [
        record(10**5, 10**5, ranks, 1, method=method, noise=noise) for ranks in (1, 2)
    ]
