"""Records of version 0.1 in the form of today: `solera bench migrate`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from solera.bench.records import Record, write
from solera.core.errors import RunError
from solera.data.datasets import load
from solera.data.interactions import Interactions
from solera.runs.settings import RunConfig

_TO_RESULT = ("protocol", "seed", "leaky", "rounds", "selected_round", "peak_bytes", "privacy")
_KEPT = ("label", "kind", "preset", "dataset", "protocol", "seed", "config")
_KEPT_OF_RECORD = ("environment", "code", "by_activity", "counts", "ranks")


def migrate(folder: Path, data_dir: Path | None = None) -> list[Path]:
    """Rewrite all records of format 1 under a folder; returns their files.

    Old records do not say how many users and items a data set has, so each data set is loaded once.
    """

    @cache
    def data(dataset: str, min_interactions: int | None) -> Interactions:
        return load(dataset, data_dir=data_dir, min_interactions=min_interactions)

    migrated = []
    for path in sorted(folder.rglob("*.json")):
        try:
            old = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise RunError(
                f"{path} cannot be read: {error}", "move this file elsewhere, then run the command again"
            ) from None
        if isinstance(old, dict) and old.get("format") == 1 and "figures" in old and "ranks" in old:
            used = data(old["config"]["dataset"], old["config"].get("min_interactions"))
            write(_record(old, used), path)
            migrated.append(path)
    return migrated


def _record(old: Mapping[str, Any], data: Interactions) -> Record:
    config, sent, seconds = old["config"], old.get("bytes"), old["seconds"]
    is_method = old["kind"] == "method"
    result = {name: old[name] for name in _TO_RESULT if name in old} | {
        "method": config.get("baseline"),
        "dataset": old["dataset"],
        "users": data.n_users,
        "items": data.n_items,
        "evaluated_users": len(old["ranks"] if old.get("counts") is None else old["counts"]),
        "test": old["figures"]["test"],
        "validation": old["figures"]["validation"],
        "options": config["options"],
        "seconds_per_round": seconds["per_round"],
        "seconds_to_fit": None if is_method else seconds["total"],
        "bytes": sent and {"up": sent["up"], "down": sent["down"]},
    }
    if is_method:
        run = RunConfig.model_validate(config)
        result |= {
            "method": run.full_method,
            "engine": run.engine,
            "precision": run.precision,
            "secure_aggregation": run.secure_aggregation,
        }
    content = {name: old[name] for name in (*_KEPT, *_KEPT_OF_RECORD) if name in old} | {
        "result": result,
        "seconds": seconds["total"],
        "bytes_until_selected": sent
        and {"up": sent["up_until_selected"], "down": sent["down_until_selected"]},
    }
    return Record.model_validate(content)
