"""Pictures about scale, from the records of `solera bench scale`."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from blocks.scale import Records, checks

from solera.report.chart import Chart, Series, draw
from solera_research.scale.records import ScaleRecord

Value = Callable[[ScaleRecord], float]
_DOTS = 40  # of the line where predicted and measured are equal
PARTS: dict[str, Value] = {
    "start and end": lambda each: each.seconds.rest,
    "training": lambda each: each.seconds.training - each.point.rounds * each.seconds.server,
    "server": lambda each: each.point.rounds * each.seconds.server,
    "validation": lambda each: each.seconds.validation,
    "test": lambda each: each.seconds.test,
}


def pictures(records: Records) -> dict[str, tuple[str, str]]:
    """Of every picture that the records suffice for: its name, what it shows, and the picture."""
    made = {name: (text, chart) for name, text, chart in _charts(records) if chart.series}
    return {name: (text, draw(chart, text, alone=True) + "\n") for name, (text, chart) in made.items()}


def _charts(records: Records) -> Iterator[tuple[str, str, Chart]]:
    two_threads = [each for each in records if (each.point.ranks, each.point.threads) == (1, 2)]
    most = max((each.point.items for each in two_threads), default=0)
    by_users = [each for each in two_threads if each.point.items == most]
    middle = sorted({each.point.users for each in by_users})[-2:][:1]
    by_items = [each for each in two_threads if each.point.users in middle]
    for name, what, value in (
        ("time", "seconds in all", lambda each: each.seconds.wall),
        ("round", "seconds of a round", lambda each: each.seconds.train),
        ("memory", "peak memory, GB", lambda each: each.peak_bytes / 1e9),
    ):
        for axis, chosen in (("users", by_users), ("items", by_items)):
            yield f"scale-{name}-{axis}", f"{what}, by {axis}", _lines(chosen, axis, what, value)
    yield "scale-ranks", "Seconds of a round with one and two ranks, one thread each", _ranks(records)
    yield "scale-parts", "Where the time of each method's largest point goes", _parts(two_threads)
    yield "scale-predicted", "Largest points: predicted against measured", _predicted(records)


def _lines(records: Records, axis: str, what: str, value: Value) -> Chart:
    series = []
    for number, label in enumerate(dict.fromkeys(each.point.label for each in records)):
        own = sorted(
            (getattr(each.point, axis), value(each)) for each in records if each.point.label == label
        )
        xs, ys = zip(*own, strict=True)
        series.append(Series(label, ys, xs, colour=number, key=label))
    return Chart("lines", series, axis, what, log_x=True, log_y=True)


def _ranks(records: Records) -> Chart:
    one_thread = [each for each in records if each.point.threads == 1]
    numbers = sorted({each.point.ranks for each in one_thread})
    labels = [
        label
        for label in dict.fromkeys(each.point.label for each in one_thread)
        if {each.point.ranks for each in one_thread if each.point.label == label} == set(numbers)
    ]
    found = {(each.point.label, each.point.ranks): each.seconds.train for each in one_thread}
    series = [
        Series(
            f"{ranks} rank{'s' if ranks > 1 else ''}",
            [found[label, ranks] for label in labels],
            colour=number,
            key=str(ranks),
        )
        for number, ranks in enumerate(numbers)
        if labels and len(numbers) > 1
    ]
    return Chart("bars", series, "", "seconds of a round", categories=labels)


def _parts(records: Records) -> Chart:
    largest = {each.point.label: each for each in sorted(records, key=lambda each: each.point.users)}
    series = [
        Series(part, [100 * value(each) / each.seconds.wall for each in largest.values()], colour=n, key=part)
        for n, (part, value) in enumerate(PARTS.items())
        if largest
    ]
    return Chart("bars", series, "", "% of the time", categories=list(largest))


def _predicted(records: Records) -> Chart:
    series = []
    for number, name in enumerate(("seconds of a round", "seconds of evaluation", "seconds in all")):
        own = [(each.measured[name], each.predicted[name]) for each in checks(records)]
        if own:
            xs, ys = zip(*own, strict=True)
            series.append(Series(name, ys, xs, colour=number, key=name))
    if series:
        low, high = min(min(each.x) for each in series), max(max(each.x) for each in series)
        line = [low * (high / low) ** (step / _DOTS) for step in range(_DOTS + 1)]
        series.append(Series("equal", line, line, colour=9, key="equal"))
    return Chart("points", series, "measured", "predicted", log_x=True, log_y=True)
