"""The parts of the page that are tables: figures, cost, privacy, configuration."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from solera.bench.machine import anonymous
from solera.bench.statistics import SHOWN
from solera.evaluate import get
from solera.privacy.figures import Figures as Found
from solera.privacy.records import of_run
from solera.report.figures.headline import RANKINGS
from solera.report.html import comparison, named, number, row, size, table
from solera.report.recorded import Recorded, data_name

LEAKY = "LEAKY: held-out items can be told from the training negatives; do not compare with honest figures"


def headline_table(runs: Sequence[Recorded]) -> str:
    """Test figures with intervals, under a line for every data set and protocol."""
    columns = [
        "run",
        *(f"{metric.upper()}<br><small>{name}</small>" for name in RANKINGS.values() for metric in SHOWN),
    ]
    lines, last = [], ("", "")
    for run in runs:
        group = (run.dataset, run.config.protocol)
        if group != last:
            lines.append(_group_line(run, len(columns) + 1))
            last = group
        lines.append(row(named(run.title), (*_figures(run), _round(run))))
    return table([*columns, "round"], lines)


def _group_line(run: Recorded, width: int) -> str:
    about = f"{escape(run.dataset)} · protocol {escape(run.config.protocol)}"
    if run.leaky:
        about = f'<span class="leaky">{about} · {LEAKY}</span>'
    else:
        about += f" <small>{escape(get(run.config.protocol).summary)}</small>"
    return _group(about, width)


def _group(about: str, width: int) -> str:
    """What the rows below have in common."""
    return f'<tr class="group"><th colspan="{width}" scope="rowgroup"><div>{about}</div></th></tr>'


def _figures(run: Recorded) -> Iterator[str]:
    for kind in RANKINGS:
        for metric in SHOWN:
            if run.result is None:
                yield "–"
                continue
            shown = number(run.result.test[kind][metric])
            if run.users:
                found = run.users.intervals[kind][metric]
                shown += f"<br><small>{found.low:.4f} – {found.high:.4f}</small>"
            yield f'<span class="leaky">{shown}</span>' if run.leaky else shown


def _round(run: Recorded) -> str:
    if run.result is None:
        return f"unfinished: {len(run.history)} of {run.config.rounds}"
    return f"{run.result.selected_round} of {run.result.rounds}"


def missing(runs: Sequence[Recorded]) -> str:
    """Which runs have no intervals, and why."""
    reasons: dict[str, list[str]] = {}
    for run in runs:
        if run.users is None:
            reasons.setdefault(run.without_users, []).append(named(run.title))
    if not reasons:
        return ""
    lines = "".join(f"<li>{escape(why)}: {', '.join(titles)}</li>" for why, titles in reasons.items())
    return f'<p>Without intervals and figures by activity:</p><ul class="missing">{lines}</ul>'


def cost_table(runs: Sequence[Recorded]) -> str:
    """Bytes, seconds and memory, of the server and of a client."""
    columns = (
        "run",
        "client: up a round",
        "client: down a round",
        "client: up + down till the round that counts",
        "client: state kept, mean",
        "server: up + down a round",
        "server: state kept",
        "training, s a round (median)",
        "training, s in all",
        "validation, s in all",
        "peak memory of the simulation",
    )
    return table(columns, (row(named(run.title), _costs(run)) for run in runs if run.result))


def _costs(run: Recorded) -> Iterator[str]:
    result = run.result
    assert result is not None
    assert result.bytes is not None
    users, until = result.users, run.history[: result.selected_round]
    moved = [(entry.bytes.up + entry.bytes.down) * entry.clients for entry in run.history]
    yield _bytes(result.bytes.up)
    yield _bytes(result.bytes.down)
    yield _bytes(sum(moved[: len(until)]) / users)
    yield _bytes(_file_size(run, "personal") / users)
    yield _bytes(sum(moved) / max(1, len(moved)))
    yield _bytes(_file_size(run, "shared"))
    yield number(result.seconds_per_round or 0.0, 3)
    yield number(sum(entry.seconds.train for entry in run.history), 1)
    yield number(sum(entry.seconds.evaluate for entry in run.history), 1)
    yield _bytes(result.peak_bytes) if result.peak_bytes else "not recorded"


def _bytes(count: float) -> str:
    return f'<data value="{count!r}">{size(count)}</data>'


def _file_size(run: Recorded, part: str) -> int:
    path = run.path / f"{part}.safetensors"
    return path.stat().st_size if path.exists() else 0


def privacy_table(runs: Sequence[Recorded]) -> str:
    """Whatever results say of privacy; nothing where none does."""
    stated = [(run, run.result.privacy) for run in runs if run.result and run.result.privacy]
    return comparison(*zip(*stated, strict=True)) if stated else ""


def attacks_table(runs: Sequence[Recorded]) -> str:
    """What `solera attack` found in the uploads of runs, by rounds and attack, and by clients in a sum."""
    records = [(run, record.findings) for run in runs if (record := of_run(run.path))]
    if not records:
        return ""
    sums = sorted({found.summed for _, findings in records for found in findings})
    lines = []
    for run, findings in records:
        found = {(each.rounds, each.attack, each.summed): each.target for each in findings}
        for rounds in dict.fromkeys(each.rounds for each in findings):
            lines.append(_group(f"{named(run.title)} <small>{rounds}</small>", len(sums) + 1))
            for attack in dict.fromkeys(each.attack for each in findings if each.rounds == rounds):
                cells = (_leaked(found.get((rounds, attack, summed))) for summed in sums)
                lines.append(row(escape(attack), cells))
    columns = ("attack", *("one client" if n == 1 else f"sum of {n}" for n in sums))
    about = (
        "Which items are a client's, by what it uploads (solera attack): AUC, where 0.5 is chance and 1 is "
        "everything; and the share of the client's items among the first as many."
    )
    return f"<h3>Attacks</h3><p>{about}</p>{table(columns, lines)}"


def _leaked(target: Found | None) -> str:
    if target is None:
        return "–"
    auc = "–" if target.auc is None else number(target.auc, 3)
    return f"{auc}<br><small>{number(target.precision, 3)}</small>"


def configuration(runs: Sequence[Recorded]) -> str:
    """What was asked for; paths of own files stay out."""
    contents = [run.config.model_dump(mode="json") for run in runs]
    return comparison(runs, [each | {"dataset": data_name(each["dataset"])} for each in contents])


def machines(runs: Sequence[Recorded]) -> str:
    """Machine and versions; no host's name."""
    return comparison(runs, [anonymous(run.environment) for run in runs])
