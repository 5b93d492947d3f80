"""Tables about scale, from the records of `solera bench scale`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from blocks.markdown import NONE_YET, table

from solera.methods import names
from solera_research.scale.fit import Check, CostModel, Size, check, models
from solera_research.scale.forecast import SOURCE, ByFormula, Limits, Prices, amount, by_formula, forecast
from solera_research.scale.points import FULL, points, short
from solera_research.scale.records import ScaleRecord, size_of

Records = Sequence[ScaleRecord]
TARGET = Size(users=1e8, items=1e7, clients=1e5, rounds=100, ranks=64)
UNITS = {
    "local": "core seconds of a round, local training",
    "server": "seconds of a round, server",
    "evaluation": "core seconds of a ranked user",
    "start": "seconds to start and to end",
    "memory": "bytes of a rank",
    "state": "bytes of clients' state",
    "up": "bytes up, of a client in a round",
    "down": "bytes down, of a client in a round",
}


def where(record: ScaleRecord) -> tuple[str, ...]:
    """The first cells of a row: the method and the size."""
    point, world = record.point, record.world
    return (point.label, short(point.users), f"{world.items:,}", f"{point.ranks} × {point.threads}")


WHERE = ("method", "users", "items that occur", "ranks × threads")


def time(records: Records) -> str:
    """Where the time of every point went."""
    return _table(
        (
            *WHERE,
            "clients in a round",
            "s a round",
            "of it server",
            "clients a second",
            "validation, s",
            "test, s",
            "start and end, s",
            "in all, s",
        ),
        (
            (
                *where(each),
                f"{each.point.clients:,}",
                figure(each.seconds.train),
                figure(each.seconds.server),
                f"{each.clients_per_second:,.0f}",
                figure(each.seconds.validation),
                figure(each.seconds.test),
                figure(each.seconds.rest),
                figure(each.seconds.wall),
            )
            for each in records
        ),
    )


def in_short(records: Records) -> str:
    """The largest point of every method, and how much faster two ranks are than one process."""
    rows = []
    for label in dict.fromkeys(each.point.label for each in records):
        own = [each for each in records if each.point.label == label]
        largest = max(own, key=lambda each: size_of(each.point))
        by_ranks = {each.point.ranks: each for each in own if each.point.threads == 1}
        faster = "–"
        if {1, 2} <= by_ranks.keys():
            faster = f"{by_ranks[2].clients_per_second / by_ranks[1].clients_per_second:.2f}"
        rows.append(
            (
                label,
                f"{short(largest.point.users)} × {short(largest.point.items)}",
                figure(largest.seconds.training),
                figure(largest.seconds.wall / 60),
                amount(largest.peak_bytes),
                f"{largest.clients_per_second / largest.point.cores:,.0f}",
                faster,
            )
        )
    head = (
        "method",
        "users × items",
        "s of training",
        "minutes in all",
        "peak of a process",
        "clients a second and core",
        "two ranks / one process",
    )
    return _table(head, rows)


def memory(records: Records) -> str:
    """Memory, what the plan said of it and of the time, traffic, and quality."""
    return _table(
        (
            *WHERE,
            "peak of a process",
            "plan said",
            "s without start and end",
            "plan said",
            "down",
            "up",
            "clients' state",
            "NDCG@10",
            "popularity",
        ),
        (
            (
                *where(each),
                amount(each.peak_bytes),
                amount(each.plan.bytes) if each.plan else "–",
                figure(each.seconds.wall - each.seconds.rest),
                figure(each.plan.seconds) if each.plan and each.plan.seconds else "–",
                amount(each.bytes_down),
                amount(each.bytes_up),
                amount(each.kept_bytes),
                f"{each.ndcg:.4f}",
                f"{each.world.popularity:.4f}",
            )
            for each in records
        ),
    )


def missing(records: Records) -> str:
    """Which points of the full matrix have no record."""
    wanted = points(FULL)
    found = {each.point.name for each in records}
    left: dict[str, list[str]] = {}
    for point in wanted:
        if point.name not in found:
            left.setdefault(point.label, []).append(f"`{point.size}`")
    if not left:
        return f"All {len(wanted)} points are measured."
    done = len(wanted) - sum(map(len, left.values()))
    lines = [f"- {label}: {', '.join(sizes)}" for label, sizes in left.items()]
    return "\n".join([f"{done} of {len(wanted)} points are measured. Missing are:\n", *lines])


def machines(records: Records) -> str:
    """What the points were measured on."""
    if not records:
        return NONE_YET
    found = {
        f"{each.environment.get('cores')} cores ({each.environment.get('machine')}), "
        f"Python {each.environment.get('python')}, torch {each.environment.get('packages', {}).get('torch')}"
        for each in records
    }
    commits = sorted({(each.code.commit or "unknown")[:9] for each in records})
    return f"Measured on {'; '.join(sorted(found))}. Source: {', '.join(commits)}."


def unit_costs(fitted: Iterable[CostModel]) -> str:
    """The coefficients of the model."""
    return _table(
        ("method", "points", "figure", "unit costs"),
        (
            (
                model.method,
                str(model.points),
                UNITS[name],
                " + ".join(f"{cost:.3g} · {term}" for term, cost in costs.items()),
            )
            for model in fitted
            for name, costs in model.costs.items()
        ),
    )


def checks(records: Records) -> list[Check]:
    """Of every method with enough points, its largest one predicted from the others."""
    labels = dict.fromkeys(each.point.label for each in records)
    made = (check([each for each in records if each.point.label == label]) for label in labels)
    return [each for each in made if each]


def checked(records: Records) -> str:
    """Predicted against measured."""
    return _table(
        ("largest point", "predicted from", "figure", "predicted", "measured", "predicted / measured"),
        (
            (
                f"`{each.record.point.name}`",
                f"{each.points} points",
                name,
                figure(each.predicted[name]),
                figure(value),
                f"{each.predicted[name] / value:.2f}" if value else "–",
            )
            for each in checks(records)
            for name, value in each.measured.items()
        ),
        "No method has enough points yet.",
    )


def predicted(records: Records, limits: Limits) -> str:
    """What a round takes at the target, by the cost model."""
    fitted = models(records) if records else {}
    found = [
        forecast(
            model,
            Size(
                TARGET.users,
                TARGET.items,
                TARGET.clients,
                TARGET.rounds,
                TARGET.ranks,
                embedding_size=model.embedding_size,
            ),
            Prices(),
            limits,
        )
        for model in fitted.values()
    ]
    rows = (
        (
            each.method,
            f"{each.clients:.0e}",
            figure(each.core_seconds),
            figure(each.seconds),
            amount(each.memory),
            amount(each.down),
            amount(each.network),
            amount(each.between_ranks),
            f"{each.dollars:,.2f}",
            figure(each.test_core_hours),
            "; ".join(each.obstacles) or "none",
        )
        for each in found
    )
    head = (
        "method",
        "clients in a round",
        "core s a round",
        "s a round",
        "memory of a rank",
        "down per client",
        "network, clients",
        "network, ranks",
        "$ a round",
        "core hours of a test of everybody",
        "what stands in the way",
    )
    return f"{_table(head, rows)}\n\n{SOURCE} {_prices(Prices())}"


def _prices(prices: Prices) -> str:
    return (
        f"A core with {prices.gb_per_core:g} GB costs {prices.core_hour:g} $ an hour, a GB to clients "
        f"{prices.gb_out:g} $."
    )


def formulas(limits: Limits) -> str:
    """Of all methods what their definitions say, those with the same answer together."""
    groups: dict[tuple[float, float, tuple[str, ...]], list[str]] = {}
    for name in names():
        found: ByFormula = by_formula(name, TARGET, limits)
        groups.setdefault((found.down, found.server, found.obstacles), []).append(name)
    return table(
        ("methods", "down per client", "tables and sums on the server", "what stands in the way"),
        (
            (", ".join(methods), amount(down), amount(server), "; ".join(why) or "none")
            for (down, server, why), methods in sorted(groups.items(), key=lambda group: group[0][1])
        ),
    )


def figure(value: float) -> str:
    """A number with three digits."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _table(head: Sequence[str], rows: Iterable[Iterable[str]], otherwise: str = NONE_YET) -> str:
    found = [tuple(row) for row in rows]
    return table(head, found) if found else otherwise
