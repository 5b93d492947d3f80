"""Compare the folders of two runs, bit by bit."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file


def content(out: Path) -> tuple[dict, list, dict]:
    """Result, history and model of a run, without what time does to them."""
    result = json.loads((out / "result.json").read_text())
    history = [json.loads(line) for line in (out / "history.jsonl").read_text().splitlines()]
    for each in (result, *history):
        for key in ("seconds", "seconds_per_round", "seconds_to_test", "peak_bytes"):
            each.pop(key, None)
    tensors = {path.name: load_file(path) for path in sorted(out.glob("*.safetensors"))}
    return result, history, tensors


def same(one: tuple[dict, list, dict], two: tuple[dict, list, dict]) -> None:
    """Assert that two runs have the same content."""
    assert one[0] == two[0]
    assert one[1] == two[1]
    assert one[2].keys() == two[2].keys() != set()
    for name, tensors in one[2].items():
        for key, value in tensors.items():
            assert np.array_equal(value, two[2][name][key]), f"{name}: {key}"
