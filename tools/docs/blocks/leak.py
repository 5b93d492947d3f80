"""Tables of the leak: the counter by data set, public repositories, their code with one line changed."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from blocks.markdown import NONE_YET, folded, table

from solera.study.records import Store
from solera_research.leak import DATASETS
from solera_research.records import Measured

_KINDS = ("before", "after")
_METRICS = ("hr@10", "ndcg@10")
_ASKED = ("negatives", "candidates", "round", "ties", "duplicates")
_LEAKS = {
    "leaks": "excluded",
    "fixed-leaks": "excluded, drawn once",
    "none": "may be drawn",
    "all-candidates": "excluded, as are all it is ranked against",
    "not-drawn": "no negatives",
    "unknown": "cannot be told",
}


class Leak(NamedTuple):
    """What is recorded of it."""

    rows: Sequence[Mapping[str, Any]]  # of the counter, data set after data set
    repositories: Sequence[Mapping[str, Any]]
    runs: Sequence[Mapping[str, Any]]  # of the authors' code

    @classmethod
    def read(cls, experiments: Path) -> Leak:
        """From the records and the list of repositories; empty where there are none."""
        counted = Store(experiments / "records" / "leak", Measured).listed()
        listed = experiments / "repositories.toml"
        return cls(
            [counted[name].content for name in DATASETS if name in counted],
            tomllib.loads(listed.read_text("utf-8"))["repository"] if listed.exists() else (),
            [record.content for record in Store(experiments / "records" / "authors", Measured).all()],
        )


def counter_table(leak: Leak) -> str:
    """The counter, its formula, and the best published figures."""
    if not leak.rows:
        return NONE_YET
    head = (
        "HR@10 / NDCG@10",
        "counter",
        "by formula",
        "highest published",
        "popularity",
        "counter, ties by popularity",
        "counter under `strict`",
    )
    return table(head, map(_counted, leak.rows))


def _counted(row: Mapping[str, Any]) -> tuple[str, ...]:
    best = {key: max(row["published"], key=lambda each: each[key]) for key in _METRICS}
    names = list(dict.fromkeys(f"{each['row']}, {each['paper']}" for each in best.values()))
    highest = f"{_pair({key: best[key][key] for key in _METRICS})} ({'; '.join(names)})"
    return (
        row["dataset"],
        _pair(row["counter"]),
        _pair(row["law"]),
        highest,
        _pair(row["popularity"]),
        _pair(row["counter, ties by popularity"]),
        _pair(row["counter, strict"]),
    )


def _pair(figures: Mapping[str, float]) -> str:
    return f"{figures['hr@10']:.3f} / {figures['ndcg@10']:.3f}"


def repositories_summary(leak: Leak) -> str:
    """How many repositories draw how."""
    grouped: dict[str, list[str]] = {answer: [] for answer in _LEAKS}
    for each in leak.repositories:
        grouped[each["negatives"]["answer"]].append(re.split(r" \(|, with", each["method"])[0])
    rows = [(_LEAKS[answer], str(len(names)), ", ".join(names)) for answer, names in grouped.items()]
    return table(("the held-out item as a training negative", "repositories", "methods"), rows)


def repositories(leak: Leak) -> str:
    """All repositories, with commit and line of every answer."""
    return "\n\n".join(_repository(each) for each in leak.repositories)


def _repository(each: Mapping[str, Any]) -> str:
    drawn = _LEAKS[each["negatives"]["answer"]]
    summary = f"<b>{each['name']}</b>, {each['method']}: {drawn}"
    paper = f"{each['paper']}; " if each["paper"] else ""
    lines = [
        f"- {paper}[commit {each['commit'][:10]}](https://github.com/{each['name']}/tree/{each['commit']})"
    ]
    for question in _ASKED:
        found = each[question]
        answer = _LEAKS[found["answer"]] if question == "negatives" else found["answer"]
        note = f". {found['note'][:1].upper()}{found['note'][1:]}" if found["note"] else ""
        lines.append(f"- {question}: {answer} (`{found['where']}`){note}")
    noted = [f"- {each['note']}"] if each["note"] else []
    return folded(summary, "\n".join((*lines, *noted)))


def authors(leak: Leak) -> str:
    """The authors' own code before and after one line is changed."""
    if not leak.runs:
        return NONE_YET
    grouped: dict[tuple[str, str], dict[str, list[Mapping[str, Any]]]] = {}
    for run in leak.runs:
        kind = "after" if run["change"] else "before"
        grouped.setdefault((run["method"], run["dataset"]), {}).setdefault(kind, []).append(run)
    rows = []
    by_method = sorted(grouped.items())
    for (method, dataset), runs in sorted(by_method, key=lambda each: each[0][1] != "ml-100k"):
        if len(runs) < len(_KINDS):
            continue
        changed = runs["after"][0]["change"]
        rounds = min(run["rounds"] for kind in _KINDS for run in runs[kind])
        place = f"`{changed['file']}:{changed['line']}`"
        rows.append((method, dataset, place, str(rounds), *(_mean(runs[kind], rounds) for kind in _KINDS)))
    return table(("code", "data", "line", "after round", *_KINDS), rows)


def _mean(runs: Sequence[Mapping[str, Any]], rounds: int) -> str:
    mean = {key: sum(run["by_round"][key][rounds - 1] for run in runs) / len(runs) for key in _METRICS}
    return _pair(mean) + (f" ({len(runs)} seeds)" if len(runs) > 1 else "")
