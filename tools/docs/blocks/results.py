"""What was measured, from records: published rows, the leaderboard, ablations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import mean, median, stdev

from blocks.boards import grid
from blocks.markdown import NONE_YET, PAIR, table
from blocks.settings import METRICS, published

from solera.bench.blocks import HISTORIES, blocks
from solera.bench.papers import Stored
from solera.bench.records import History, Record
from solera.bench.tables import main_table
from solera.runs.presets import preset, presets

PROTOCOLS = {"paper": "`paper` (leaky)", "strict": "`strict`"}
HEADLINE = {  # label: how it is called, and whose published row it has
    "pfedrec": ("PFedRec", "paper:pfedrec/ml-100k"),
    "fedrap": ("FedRAP", "paper:fedrap/ml-100k"),
    "pfedclr": ("PFedCLR", "paper:pfedclr/ml-100k"),
    "fedem": ("FedEM", "paper:fedem/ml-100k"),
    "plgc": ("FedMF with PLGC", "paper:fedmf+plgc/ml-100k"),
    "popularity": ("*popularity*", ""),
    "ease": ("*EASE, centralized*", ""),
    "sasrec": ("*SASRec, centralized*", ""),
    "fedease": ("**FedEASE**, one round", ""),
    "fedhist": ("**FedHist**", ""),
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


def headline(records: Records, papers: Stored) -> str:
    """The published figures, the same with the leak, and what remains without it; HR@10 on ml-100k."""
    rows = []
    for label, (name, source) in HEADLINE.items():
        there = preset(source).published["hr"] if source else None
        leaky = papers.find(preset(source).config()) if source else []
        best = _best_on_validation(records, (label, f"{label}, defaults", source))
        rows.append(
            (
                name,
                f"{there:.3f}" if there else "",
                _hr(leaky, "sampled99") if source else "",
                _hr(best, "sampled99"),
                *_of_both(best),
            )
        )
    whole = (f"`strict`, whole catalogue, {known}: {PAIR}" for known in HISTORIES.values())
    head = ("", "published", "`paper` (leaky)", "`strict`", *whole)
    return table(head, rows)


def _best_on_validation(records: Records, labels: Iterable[str]) -> Records:
    """Of a method's runs on ml-100k under strict, those of the settings that are best on validation items."""
    groups = (
        [run for run in records if (run.label, run.dataset, run.protocol) == (label, "ml-100k", "strict")]
        for label in labels
    )
    return max(
        filter(None, groups),
        key=lambda runs: mean(run.result.validation.full["ndcg@10"] for run in runs),
        default=[],
    )


def _hr(runs: Records, part: str) -> str:
    values = [getattr(run.result.test, part)["hr@10"] for run in runs]
    return _spread(values) if values else "not measured yet"


def ablation(records: Records, dataset: str, first: str) -> str:
    """One method with and without its parts."""
    runs = [run for run in records if run.label.split("+")[0] == first]
    found = [block for block in blocks(runs) if block.dataset == dataset]
    return grid(main_table, found[0]) if found else NONE_YET


def leaky(records: Records, dataset: str) -> str:
    """Everything on a data set under the papers' protocol."""
    found = blocks([run for run in records if (run.protocol, run.dataset) == ("paper", dataset)])
    return grid(main_table, found[0]) if found else NONE_YET


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
