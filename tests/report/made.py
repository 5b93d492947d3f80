"""Folders of runs: written by hand, or trained on a small data set."""

from __future__ import annotations

import random
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import torch

from solera.evaluate import get
from solera.evaluate.metrics import CUTOFFS
from solera.runs import RoundEntry, RunFolder, RunResult
from solera.runs.environment import environment
from solera.runs.folder import StateToSave
from solera.runs.presets import run_settings

VOID = {"meta", "br", "input", "path", "rect", "circle"}


def figures(draw: random.Random) -> dict[str, dict[str, float]]:
    names = [f"{name}@{k}" for k in CUTOFFS for name in ("hr", "ndcg", "mrr", "recall")]
    return {kind: {name: draw.random() for name in names} for kind in ("full", "sampled99")}


def write_run(
    path: Path,
    *,
    method: str = "fedmf",
    dataset: str = "ratings.csv",
    protocol: str = "strict",
    seed: int = 0,
    rounds: int = 3,
    finished: bool = True,
    **more: Any,
) -> dict[str, Any]:
    """A run of invented figures, and its result."""
    draw = random.Random(f"{path.name}{seed}")
    config = run_settings(method, dataset, protocol=protocol, seed=seed, rounds=rounds)
    folder = RunFolder.create(path, config, environment(1, "cpu"))
    for number in range(1, rounds + 1):
        folder.add_round(
            RoundEntry.model_validate(
                {
                    "round": number,
                    "clients": 20,
                    "loss": draw.random(),
                    "selection": draw.random(),
                    "validation": figures(draw),
                    "bytes": {"up": 1000.0 * number, "down": 3000.0},
                    "seconds": {"train": 0.5, "evaluate": 0.25},
                }
            )
        )
    result = {
        "format": 2,
        "method": method,
        "dataset": dataset,
        "protocol": protocol,
        "leaky": get(protocol).leaky,
        "seed": seed,
        "users": 20,
        "items": 40,
        "evaluated_users": 20,
        "test": figures(draw),
        "validation": figures(draw),
        "options": {},
        "rounds": rounds,
        "selected_round": max(1, rounds - 1),
        "seconds_per_round": 0.5,
        "bytes": {"up": 2000.0, "down": 3000.0},
        **more,
    }
    if finished:
        table = torch.from_numpy(np.arange(160.0).reshape(40, 4) % 7).float()
        folder.finish(
            RunResult.model_validate(result), StateToSave({"items": table}, {"user": torch.ones(20, 4)})
        )
    return result


class Page(HTMLParser):
    """A page as tables of cells, and its text with the classes around it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.stack: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, list[str]]] = []  # a piece of text, and all classes around it
        self.rows: list[list[str]] = []
        self.values: list[list[float]] = []  # of every row, the numbers in full
        self.attributes: list[tuple[str, str, str]] = []
        self.row_classes: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag == "tr":
            self.rows.append([])
            self.values.append([])
            self.row_classes.append(dict(attrs).get("class") or "")
        elif tag in {"td", "th"}:
            self.rows[-1].append("")
        elif tag == "data":
            self.values[-1].append(float(dict(attrs)["value"]))
        if tag not in VOID:
            self.stack.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.stack.pop()[0] == tag

    def handle_data(self, data):
        tags = [tag for tag, _ in self.stack]
        classes = [name for _, attrs in self.stack for name in (attrs.get("class") or "").split()]
        if not {"style", "script"} & set(tags):
            self.texts.append((data, classes))
        if {"td", "th"} & set(tags):
            self.rows[-1][-1] += data

    def row(self, name: str) -> list[str]:
        return next(row for row in self.rows if row[0] == name)
