"""What was measured, from records: published rows, the leaderboard, ablations."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean, median, stdev
from textwrap import fill

from blocks.markdown import NONE_YET, PAIR, table
from blocks.settings import METRICS, published

from solera.runs.presets import preset, presets
from solera.study.compare import HISTORIES
from solera.study.records import History, Record
from solera_research.papers.cells import Stored

PROTOCOLS = {"paper": "`paper` (leaky)", "strict": "`strict`"}
HEADLINE = {  # label: how it is called, and whose published row it has
    "counter": ("*counter of draws*, has learned nothing", ""),
    "pfedrec": ("PFedRec", "paper:pfedrec/ml-100k"),
    "fedrap": ("FedRAP", "paper:fedrap/ml-100k"),
    "pfedclr": ("PFedCLR", "paper:pfedclr/ml-100k"),
    "fedem": ("FedEM", "paper:fedem/ml-100k"),
    "popularity": ("*popularity*", ""),
    "ease": ("*EASE, centralized*", ""),
    "fedslist": ("**FedSLIST**, one round", ""),
}
KNOWN = {"train": "the training items alone", "validation": "all items before the test item"}
FULL = [f"full ranking, {known}" for known in HISTORIES.values()]
Records = Sequence[Record]


def figures(name: str, records: Records, papers: Stored) -> str:
    """A preset's published and measured figures, and the commands that make the latter."""
    rows = [("published", published(preset(name)), "", "", "")]
    both = {"paper": papers.find(preset(name).config()), "strict": _strict(records, name)}
    for protocol, runs in ((protocol, runs) for protocol, runs in both.items() if runs):
        seeds = ", ".join(map(str, sorted(run.seed for run in runs)))
        of_both = (_measured(runs, "full"), "") if protocol == "paper" else _of_both(runs)
        rows.append((PROTOCOLS[protocol], _measured(runs, "sampled99"), *of_both, seeds))
    command = f"solera train --preset {name} --seed S --protocol"
    below = f"Mean ± standard deviation over seeds: `{command} paper` and `{command} strict`."
    seconds = [
        run.result.seconds_per_round for runs in both.values() for run in runs if run.result.seconds_per_round
    ]
    time = f" Training took {median(seconds):.2g} s a round." if seconds else ""
    head = ("", f"99 negatives, {PAIR}", *(f"{each}, {PAIR}" for each in FULL), "seeds")
    columns = [number for number in range(len(head)) if number == 0 or any(row[number] for row in rows)]
    shown = [[row[number] for number in columns] for row in (head, *rows)]
    return table(shown[0], shown[1:]) + f"\n\n{below}{time}"


def headline(board: Records, earlier: Sequence[Records], papers: Stored) -> str:
    """The published figures, the same with the leak, and what remains without it; ml-100k."""
    found = {
        label: next(filter(None, (_of(each, label) for each in (board, *earlier))), []) for label in HEADLINE
    }
    shown = {label: runs for label, runs in found.items() if _known(runs, "train")}
    # One history for all rows: the device's own, or else what every record has.
    known: History = "validation" if all(_known(runs, "validation") for runs in shown.values()) else "train"
    rows = []
    for label, runs in shown.items():
        name, source = HEADLINE[label]
        there = preset(source).published["hr"] if source else None
        leaky = papers.find(preset(source).config()) if source else _of(board, label, "paper")
        rows.append(
            (
                name if _of(board, label) else f"{name} †",
                f"{there:.3f}" if there else "",
                _hr(leaky) if leaky else "",
                _hr(runs),
                _known(runs, known),
            )
        )
    head = ("HR@10", "published", PROTOCOLS["paper"], PROTOCOLS["strict"], f"whole catalogue, {PAIR}")
    notes = (
        "The first three columns rank the test item against 99 negatives, where chance is 0.10. The last is "
        f"`strict` against the whole catalogue, of models that know {KNOWN[known]}. "
        "± is the standard deviation over seeds."
    )
    if any(not _of(board, label) for label in shown):
        notes += " † by an earlier, shorter search."
    return f"{table(head, rows)}\n\n{fill(notes, 125)}" if rows else NONE_YET


def _of(records: Records, label: str, protocol: str = "strict") -> Records:
    return [run for run in records if (run.label, run.dataset, run.protocol) == (label, "ml-100k", protocol)]


def _hr(runs: Records) -> str:
    return _spread([run.result.test.sampled99["hr@10"] for run in runs])


def reproduction(papers: Stored, datasets: Sequence[str]) -> str:
    """Presets with a record under the protocol of the papers, and how far it is from what was published."""
    rows = []
    for entry in presets().values():
        leaky = papers.find(entry.config()) if entry.published and entry.dataset in datasets else []
        if leaky and entry.published:
            away = (
                mean(run.result.test.sampled99[metric] for run in leaky) - entry.published[key]
                for key, metric in METRICS.items()
            )
            difference = " / ".join(f"{each:+.3f}" for each in away)
            rows.append((f"`{entry.name}`", published(entry), _measured(leaky, "sampled99"), difference))
    return table(("preset", "published", PROTOCOLS["paper"], "difference"), rows) if rows else NONE_YET


def _strict(records: Records, name: str) -> Records:
    return [run for run in records if (run.preset, run.protocol) == (name, "strict")]


def _measured(runs: Records, part: str) -> str:
    each = ([getattr(run.result.test, part)[metric] for run in runs] for metric in METRICS.values())
    return " / ".join(map(_spread, each)) if runs else ""


def _of_both(runs: Records) -> tuple[str, str]:
    """Full-ranking figures of models that know training items alone, and the validation item as well."""
    return _known(runs, "train"), _known(runs, "validation")


def _known(runs: Records, history: History) -> str:
    found = [run.test(history) for run in runs]
    tested = [each for each in found if each]
    if not tested or len(tested) < len(found):
        return ""
    return " / ".join(_spread([each.full[metric] for each in tested]) for metric in METRICS.values())


def _spread(values: Sequence[float]) -> str:
    return f"{mean(values):.3f}" + (f" ± {stdev(values):.3f}" if len(values) > 1 else "")
