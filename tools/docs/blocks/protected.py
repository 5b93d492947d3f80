"""What protection costs: modes beside each other, and utility by ε."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from blocks.attacks import Attacks, best_attack
from blocks.markdown import NONE_YET, PAIR, table
from blocks.results import Records

from solera.runs.result import TestName
from solera.study.records import Record

EPSILONS = (None, 8.0, 4.0, 1.0)  # None: without differential privacy
SEEN_IN = {  # a mode, and what an attacker sees of it: the start of a record's protection, clients in a sum
    "plain": ("plain", 1),
    "secure aggregation": ("plain", 100),
    "central DP": ("central", None),
    "distributed DP": ("central", None),
    "local DP": ("local", 1),
}


class Private(NamedTuple):
    """Records of the matrices privacy.toml and modes.toml, and what these ask for: data set and label."""

    records: Records
    asked: Sequence[tuple[str, str]]


def modes(private: Private, attacks: Attacks, dataset: str) -> str:
    """Mode × attack × utility × bytes × seconds."""
    rows = []
    here = [run for run in private.records if run.dataset == dataset]
    tested = {
        each: _common([run for run in here if run.label.partition(", ")[0] == each])
        for each in {run.label.partition(", ")[0] for run in here}
    }
    for where, label in private.asked:
        method, _, mode = label.partition(", ")
        run = next((r for r in private.records if (r.dataset, r.label) == (where, label)), None)
        if where != dataset or mode not in SEEN_IN or not run:
            continue
        start, summed = SEEN_IN[mode]
        record = next((r for r in attacks if r.method == method and r.protection.startswith(start)), None)
        name = tested[method]
        cells = [
            name,
            _under(run, name),
            f"{run.result.bytes.up / 1000:,.0f}",
            f"{run.result.seconds_per_round:.2f}",
        ]
        rows.append((f"`{method}`", mode, best_attack(record, summed) or "–", *cells))
    head = ("", "mode", "attack", "of", PAIR, "kB up per client and round", "seconds per round")
    return table(head, rows) if rows else NONE_YET


def differential_privacy(private: Private, dataset: str) -> str:
    """Full-ranking figures by ε, the noise they took in brackets; and which of the matrix were not run."""
    here = [run for run in private.records if run.dataset == dataset]
    rows = []
    for method in dict.fromkeys(str(run.config["method"]) for run in here):
        mine = {
            (run.result.privacy or {}).get("epsilon"): run for run in here if run.config["method"] == method
        }
        clip = next((f"{run.result.privacy['clip']:g}" for run in mine.values() if run.result.privacy), "")
        rounds = next(str(run.config["rounds"]) for run in mine.values())
        tested = _common(list(mine.values()))
        figures = (_under(mine.get(epsilon), tested) for epsilon in EPSILONS)
        rows.append((f"`{method}`", rounds, clip, tested, *figures))
    head = ("", "rounds", "clip", "of", *(f"ε = {'∞' if e is None else f'{e:g}'}" for e in EPSILONS))
    done = {run.label for run in here}
    missing = ", ".join(
        f"`{label}`" for where, label in private.asked if where == dataset and label not in done
    )
    below = f"\n\nNot run: {missing}." if missing else ""
    return (table(head, rows) if rows else NONE_YET) + below


def _common(runs: Records) -> TestName:
    """The test that a method's runs have in common."""
    return "test" if all(run.result.test for run in runs) else "test_train"


def _under(run: Record | None, name: TestName) -> str:
    if run is None:
        return ""
    full = run.result.tests[name].full
    noise = f" ({run.result.privacy['noise_multiplier']:.2f})" if run.result.privacy else ""
    return f"{full['hr@10']:.4f} / {full['ndcg@10']:.4f}{noise}"


def asked_for(folder: Path) -> list[tuple[str, str]]:
    """The data sets and labels of the matrices in a folder."""
    found = (folder / name for name in ("privacy.toml", "modes.toml"))
    runs = [run for m in found if m.exists() for run in tomllib.loads(m.read_text("utf-8"))["run"]]
    return [(dataset, run["label"]) for run in runs for dataset in run["datasets"]]
