"""Times and attributes of items in closed forms: chosen on validation items, measured on test items.

    python research/experiments/content.py time fedslist ml-100k
    python research/experiments/content.py attributes fedslist beauty --among 0,3
    python research/experiments/content.py cold fedslist beauty --among 0,3
    python research/experiments/content.py tables docs/guides/closed-forms.md

Every study compares the options in `STUDIES` with the method's preset for the data set: `time` with memories
that fade by days, `attributes` with priors from attributes, `cold` with the same under the protocol
cold-items. The best on validation by NDCG@10 is recorded with its test figures, and so is the preset itself.
`--among` names the values of the first option of a study, for data sets on which a solution takes minutes.
`tables` writes the records into the page.
"""

from __future__ import annotations

import argparse
from itertools import product
from pathlib import Path
from typing import Any

from solera.data.datasets import load
from solera.runs import RunConfig, train
from solera.runs.environment import check_committed
from solera.runs.presets import presets
from solera.study.records import Store
from solera_research.records import Measured

RECORDS = Path(__file__).parents[2] / "experiments" / "records" / "content.parquet"
DAYS = (1.0, 30.0)
SOURCES, TARGETS = (0.0, 3.0), (0.0, 0.01, 0.03, 0.1)
STUDIES: dict[str, dict[str, tuple[Any, ...]]] = {
    "time": {"decay_days": (0.0, *DAYS), "least_weight": (0.0, 0.1), "until_next": (False, True)},
    "attributes": {"target_attributes": TARGETS, "source_attributes": SOURCES},
    "cold": {"cold_neighbours": (0, 3, 20), "target_attributes": (0.0, 0.03)},
}
SHOWN = ("hr@10", "ndcg@10")


def trials(study: str, method: str, among: list[float] | None) -> list[dict[str, Any]]:
    """All options to compare. The first ones are the preset's own."""
    names = dict(STUDIES[study])
    if method == "fedease" and study == "time":
        names = {"decay_days": names["decay_days"], "recency": (0.5, 0.8)}
    first = next(iter(names))
    if among is not None:
        names[first] = tuple(among)
    found = [dict(zip(names, values, strict=True)) for values in product(*names.values())]
    return [{}, *(each for each in found if any(each.values()) and (study != "time" or each[first]))]


def measure(study: str, method: str, data: str, among: list[float] | None) -> None:
    """Run all trials of a study and record them."""
    check_committed(RECORDS)
    preset = presets().get(f"strict:{method}/{data}")
    base = preset.options if preset else {}
    loaded, protocol = load(data), "cold-items" if study == "cold" else "strict"
    rows = []
    for options in trials(study, method, among):
        config = RunConfig(
            method=method,
            dataset=data,
            rounds=1,
            protocol=protocol,
            options=base | options,
            both_tests=False,
            evaluate_users=10**9,
        )
        result = train(config, loaded, threads=1).result
        told, (_, test) = result.test_request_time, result.main
        rows.append(
            {
                "options": options,
                "validation": {name: result.validation.full[name] for name in SHOWN},
                "test": {name: test.full[name] for name in SHOWN},
                "warm": test.warm and {name: test.warm[name] for name in SHOWN},
                "request_time": told and {name: told.full[name] for name in SHOWN},
                "evaluated_users": result.evaluated_users,
                "seconds": result.seconds_per_round,
            }
        )
        print(study, method, data, options, rows[-1]["validation"], rows[-1]["test"], flush=True)
    record = {"study": study, "method": method, "dataset": data, "preset": base, "trials": rows}
    Store(RECORDS, Measured).add(Measured(key=f"{study}--{method}--{data}", content=record))


def tables(page: Path) -> None:
    """Write the tables of all studies into the page, between its markers."""
    text = page.read_text(encoding="utf-8")
    for study in STUDIES:
        made = "\n".join(table(study)) if recorded(study) else "Not measured yet."
        begin, end = f"<!-- {study} -->", f"<!-- /{study} -->"
        if begin not in text:
            continue
        before, _, rest = text.partition(begin)
        text = f"{before}{begin}\n\n{made}\n\n{end}{rest.partition(end)[2]}"
    page.write_text(text, encoding="utf-8")


def recorded(study: str) -> list[dict[str, Any]]:
    """The records of a study."""
    return [each.content for each in Store(RECORDS, Measured).all() if each.content["study"] == study]


def table(study: str) -> list[str]:
    """The rows of a study: the preset, and the trial that is best on validation."""
    head = ["data set", "method", "options", "validation", "test"]
    if study == "time":
        head.append("test, time of the request known")
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for record in recorded(study):
        preset, *others = record["trials"]
        for trial in (preset, max(others, key=lambda each: each["validation"]["ndcg@10"])):
            named = ", ".join(f"`{key}={value:g}`" for key, value in trial["options"].items() if value)
            cells = [record["dataset"], f"`{record['method']}`", named or "as the preset"]
            parts = ["validation", "test", *(["request_time"] if study == "time" else [])]
            cells += [figures(trial[part]) for part in parts]
            lines.append("| " + " | ".join(cells) + " |")
    return lines


def figures(part: dict[str, float] | None) -> str:
    """HR@10 and NDCG@10."""
    return "–" if part is None else " / ".join(f"{part[name]:.4f}" for name in SHOWN)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("study", choices=[*STUDIES, "tables"])
    parser.add_argument("method_or_page")
    parser.add_argument("data", nargs="?")
    parser.add_argument("--among", type=lambda text: [float(value) for value in text.split(",")])
    given = parser.parse_args()
    if given.study == "tables":
        tables(Path(given.method_or_page))
    else:
        measure(given.study, given.method_or_page, given.data, given.among)
