"""Closed forms with all weights and with the best neighbours: accuracy, bytes, seconds, as a Markdown table.

    python research/experiments/sparse.py runs/sparse "fedease ml-1m 0" "fedease ml-1m 200"

Every case is a method, a data set and `neighbours`. A run that is in the folder already is not repeated. The
bundle is what a device downloads; its column has the accuracy that is left after weights are rounded to 8
bits and small ones are left out.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from solera.data.datasets import load
from solera.data.interactions import history
from solera.device.bundle import Bundle
from solera.device.keys import make_keys
from solera.device.model import Model
from solera.device.publish import export
from solera.engine.serving import newcomer
from solera.evaluate import Evaluator, split

COLUMNS = (
    "data set",
    "method",
    "neighbours",
    "model, MB",
    "NDCG@10",
    "s",
    "peak GB",
    "bundle, MB",
    "NDCG@10",
)


def main(folder: Path, cases: list[str]) -> None:
    """Run every case and print the table."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "publisher.key").exists():
        make_keys(folder / "publisher")
    print("|", " | ".join(COLUMNS), "|")
    print("|" + "---|" * len(COLUMNS))
    for case in cases:
        print("|", " | ".join(row(folder, *case.split())), "|", flush=True)


def row(folder: Path, method: str, data: str, neighbours: str) -> list[str]:
    """One row of the table."""
    run = folder / f"{method}-{Path(data).stem}-{neighbours}"
    if not (run / "result.json").exists():
        option = () if neighbours == "0" else ("-o", f"neighbours={neighbours}")
        command = ["train", method, "--data", data, "--threads", "1", "--json", "--out", str(run), *option]
        subprocess.run([sys.executable, "-m", "solera", *command], check=True, stdout=subprocess.DEVNULL)
    result = json.loads((run / "result.json").read_text())
    bundle = run.with_suffix(".bundle")
    export(run, bundle, folder / "publisher.key")
    return [
        data,
        method,
        "all" if neighbours == "0" else neighbours,
        f"{result['bytes']['down'] / 1e6:.1f}",
        f"{result['test']['full']['ndcg@10']:.4f}",
        f"{result['seconds_per_round']:.0f}",
        f"{result['peak_bytes'] / 1e9:.1f}",
        f"{bundle.stat().st_size / 1e6:.1f}",
        f"{served(Bundle.open(bundle), data):.4f}",
    ]


def served(bundle: Bundle, data: str) -> float:
    """NDCG@10 on the test items of what a device serves."""
    model, parts = Model(bundle), split(load(data), "strict")
    known = history(parts, "test")
    alone, _ = newcomer(
        model.method, model.shared, known.row(0), model.n_items, seed=model.seed, dtype=model.dtype
    )
    return Evaluator(parts, model.seed).test(alone.serve(known)).full["ndcg@10"]


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
