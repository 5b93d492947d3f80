"""Measure what codings of uploads and downloads cost and save: bytes of a client against NDCG@10.

    python research/experiments/communication.py runs/communication [DATA/METHOD ...]

Trains every method with every coding into a folder of its own, skips finished runs, and prints a table.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import solera
from solera.core.errors import ConfigError

SETTINGS: dict[str, dict[str, Any]] = {
    "ml-100k/fedhist": {"rounds": 40, "evaluate_every": 10},
    "ml-100k/pfedrec": {"rounds": 20, "evaluate_every": 10},
    "ml-1m/fedhist": {"rounds": 60, "evaluate_every": 20, "clients_per_round": 100},
    "ml-1m/pfedrec": {"rounds": 40, "evaluate_every": 20, "clients_per_round": 300},
    "gowalla/fedhist": {
        "rounds": 100,
        "evaluate_every": 20,
        "learning_rate": 1.0,
        "clients_per_round": 1000,
        "negatives": 4,
    },
    "gowalla/pfedrec": {"rounds": 40, "evaluate_every": 40, "clients_per_round": 1000},
}
CODINGS: list[tuple[str | None, str | None]] = [
    (None, None),
    (None, "int8"),
    ("int8", None),
    ("top-k:0.5", None),
    ("int8", "int8"),
]


def main(folder: Path, wanted: list[str]) -> None:
    """Train what is missing, and print one row for every run."""
    print("| data | method | upload | download | kB up | kB down | NDCG@10 | against none |")
    print("|---|---|---|---|---|---|---|---|")
    for name in wanted or SETTINGS:
        data, method = name.split("/")
        first = None
        for upload, download in CODINGS:
            out = folder / f"{data}-{method}-{upload or 'none'}-{download or 'none'}".replace(":", "")
            if (out / "result.json").exists():
                result = solera.open_run(out).result
            else:
                coded = {"upload": upload, "download": download}
                try:
                    run = solera.train(
                        method, data, out=out, resume=out.exists(), threads=1, **SETTINGS[name], **coded
                    )
                except ConfigError as error:
                    print(f"| {data} | {method} | {upload} | {download} | {error.message} |", flush=True)
                    continue
                result = run.result
            ndcg = result.main[1].full["ndcg@10"]
            first = first or ndcg
            row = (
                *(data, method, upload or "float32", download or "float32"),
                *(f"{result.bytes.up / 1e3:,.1f}", f"{result.bytes.down / 1e3:,.1f}"),
                *(f"{ndcg:.4f}", f"{ndcg / first - 1:+.1%}"),
            )
            print("| " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
