"""What was measured, from records: published rows, the leaderboard, ablations."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean, median, stdev

from blocks.markdown import PAIR, table
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
FULL = [f"full ranking, {known}" for known in HISTORIES.values()]
Records = Sequence[Record]


def figures(name: str, records: Records, papers: Stored) -> str:
    """A preset's published and measured figures, and the commands that make the latter."""
    rows = [("published", published(preset(name)), "", "", "")]
    both = {"paper": papers.find(preset(name).config()), "strict": _strict(records, name)}
    for protocol, runs in both.items():
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
    return table(head, rows) + f"\n\n{below}{time}"


def headline(board: Records, earlier: Sequence[Records], papers: Stored) -> str:
    """The published figures, the same with the leak, and what remains without it; ml-100k."""
    rows = []
    for label, (name, source) in HEADLINE.items():
        there = preset(source).published["hr"] if source else None
        leaky = papers.find(preset(source).config()) if source else _of(board, label, "paper")
        honest = _of(board, label)
        mark = "" if honest else " †"
        honest = honest or next(filter(None, (_of(each, label) for each in earlier)), [])
        rows.append(
            (
                name,
                f"{there:.3f}" if there else "",
                _hr(leaky, "sampled99") if leaky else "",
                _hr(honest, "sampled99") + mark,
                _of_both(honest)[1] + mark,
            )
        )
    head = ("", "published", PROTOCOLS["paper"], PROTOCOLS["strict"], f"`strict`, whole catalogue: {PAIR}")
    return table(head, rows)


def _of(records: Records, label: str, protocol: str = "strict") -> Records:
    return [run for run in records if (run.label, run.dataset, run.protocol) == (label, "ml-100k", protocol)]


def _hr(runs: Records, part: str) -> str:
    values = [getattr(run.result.test, part)["hr@10"] for run in runs]
    return _spread(values) if values else "not measured yet"


def reproduction(records: Records, papers: Stored, datasets: Sequence[str]) -> str:
    """All presets: published, measured under both protocols, and how far from what was published."""
    rows = []
    there = (entry for entry in presets().values() if entry.published)
    for entry in (entry for entry in there if not datasets or entry.dataset in datasets):
        leaky, strict = papers.find(entry.config()), _strict(records, entry.name)
        away = (
            mean(run.result.test.sampled99[metric] for run in leaky) - entry.published[key]
            for key, metric in METRICS.items()
            if leaky and entry.published
        )
        difference = " / ".join(f"{each:+.3f}" for each in away)
        row = (f"`{entry.name}`", published(entry), _measured(leaky, "sampled99"), difference)
        rows.append((*row, _measured(strict, "sampled99"), *_of_both(strict)))
    honest = ("`strict`, 99 negatives", *(f"`strict`, {each}" for each in FULL))
    return table(("preset", "published", PROTOCOLS["paper"], "difference", *honest), rows)


def _strict(records: Records, name: str) -> Records:
    return [run for run in records if (run.preset, run.protocol) == (name, "strict")]


def _measured(runs: Records, part: str) -> str:
    each = ([getattr(run.result.test, part)[metric] for run in runs] for metric in METRICS.values())
    return " / ".join(map(_spread, each)) if runs else "not measured yet"


def _of_both(runs: Records) -> tuple[str, str]:
    """Full-ranking figures of models that know training items alone, and the validation item as well."""
    return _known(runs, "train"), _known(runs, "validation")


def _known(runs: Records, history: History) -> str:
    found = [run.test(history) for run in runs]
    tested = [each for each in found if each]
    if not tested or len(tested) < len(found):
        return "not measured yet"
    return " / ".join(_spread([each.full[metric] for each in tested]) for metric in METRICS.values())


def _spread(values: Sequence[float]) -> str:
    return f"{mean(values):.3f}" + (f" ± {stdev(values):.3f}" if len(values) > 1 else "")
