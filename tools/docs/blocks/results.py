"""What was measured, from records: published rows, the leaderboard, ablations."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from statistics import mean, stdev
from textwrap import fill

from blocks.markdown import NONE_YET, PAIR, table
from blocks.settings import METRICS, published

from solera.runs.presets import preset, presets
from solera.runs.result import TESTS, Ranking, TestName
from solera.study.records import Record
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
RANKED: dict[Ranking, str] = {"sampled99": "99 negatives", "full": "full ranking"}
Records = Sequence[Record]


def figures(name: str, records: Records, papers: Stored) -> str:
    """A preset's published and measured figures, and the commands that make the latter."""
    rows: list[tuple[str, ...]] = [("published", published(preset(name)), "", "", "", "")]
    both = {"paper": papers.find(preset(name).config()), "strict": _strict(records, name)}
    for protocol, runs in ((protocol, runs) for protocol, runs in both.items() if runs):
        seeds = ", ".join(map(str, sorted(run.seed for run in runs)))
        figures = (_measured(runs, *how) for how in product(TESTS, RANKED))
        rows.append((PROTOCOLS[protocol], *figures, seeds))
    command = f"solera train --preset {name} --seed S --protocol"
    below = f"Mean ± standard deviation over seeds: `{command} paper` and `{command} strict`."
    head = ("", *(f"{test}, {RANKED[ranking]}, {PAIR}" for test, ranking in product(TESTS, RANKED)), "seeds")
    columns = [number for number in range(len(head)) if number == 0 or any(row[number] for row in rows)]
    shown = [[row[number] for number in columns] for row in (head, *rows)]
    return table(shown[0], shown[1:]) + f"\n\n{below}"


def headline(board: Records, papers: Stored) -> str:
    """The published figures, the same with the leak, and what remains without it; ml-100k."""
    rows = []
    for label, (name, source) in HEADLINE.items():
        there = preset(source).published["hr"] if source else None
        leaky = papers.find(preset(source).config()) if source else _of(board, label, "paper")
        tuned = _of(board, label)
        rows.append(
            (
                name,
                f"{there:.3f}" if there else "–",
                _hr(leaky, "test_train"),
                _hr(tuned, "test"),
                _measured(tuned, "test", "full"),
            )
        )
    head = ("HR@10", "published", PROTOCOLS["paper"], PROTOCOLS["strict"], f"whole catalogue, {PAIR}")
    notes = (
        "The first three columns rank the test item against 99 negatives, where chance is 0.10. The last is "
        "`strict` against the whole catalogue. Models know all items before the test item; under `paper`, "
        "the training items alone. ± is the standard deviation over seeds. Settings are the papers' and "
        "our defaults under `paper`, and those of a search under `strict`."
    )
    return f"{table(head, rows)}\n\n{fill(notes, 130)}"


def _of(records: Records, label: str, protocol: str = "strict") -> Records:
    return [run for run in records if (run.label, run.dataset, run.protocol) == (label, "ml-100k", protocol)]


def _hr(runs: Records, name: TestName) -> str:
    return _measured(runs, name, "sampled99").partition(" / ")[0]


def reproduction(papers: Stored, datasets: Sequence[str]) -> str:
    """Presets with a record under the protocol of the papers, and how far it is from what was published."""
    rows = []
    for entry in presets().values():
        leaky = papers.find(entry.config()) if entry.published and entry.dataset in datasets else []
        if leaky and entry.published:
            away = (
                mean(test.sampled99[metric] for run in leaky if (test := run.result.test_train))
                - entry.published[key]
                for key, metric in METRICS.items()
            )
            difference = " / ".join(f"{each:+.3f}" for each in away)
            rows.append(
                (f"`{entry.name}`", published(entry), _measured(leaky, "test_train", "sampled99"), difference)
            )
    return table(("preset", "published", PROTOCOLS["paper"], "difference"), rows) if rows else NONE_YET


def _strict(records: Records, name: str) -> Records:
    return [run for run in records if (run.preset, run.protocol) == (name, "strict")]


def _measured(runs: Records, name: TestName, ranking: Ranking) -> str:
    """HR@10 and NDCG@10 of a test; empty where a run has no such test."""
    tested = [run.result.tests.get(name) for run in runs]
    found = [each[ranking] for each in tested if each]
    if not found or len(found) < len(tested):
        return ""
    return " / ".join(_spread([each[metric] for each in found]) for metric in METRICS.values())


def _spread(values: Sequence[float]) -> str:
    return f"{mean(values):.3f}" + (f" ± {stdev(values):.3f}" if len(values) > 1 else "")
