"""Records as version 0.2 kept them, a JSON file each, for one more version."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from solera.core.errors import RunError
from solera.study.budget import Effort
from solera.study.presets import length
from solera.study.records import Failure, Record, Store
from solera.study.trials import Study


def import_folder(folder: Path, table: Path) -> int:
    """Add all records or all studies of a folder to a table; return their number."""
    found = list(_found(folder))
    kinds = {type(each) for each in found if not isinstance(each, Failure)}
    if len(kinds) != 1:
        raise RunError(
            f"{folder} holds records and studies" if kinds else f"no records in {folder}",
            "give the folder of a matrix's results, or that of its studies",
        )
    store: Store[Any] = Store(table, kinds.pop())
    store.add(*found)
    return len(found)


def _found(folder: Path) -> Iterator[Record | Study | Failure]:
    for path in sorted(folder.rglob("*.json")):
        try:
            content = json.loads(path.read_bytes())
            if "trials" in content:
                yield _study(content)
            elif path.name.endswith(".failed.json"):
                yield Failure.model_validate(content)
            else:
                yield Record.model_validate({"format": 1, **content})
        except (OSError, ValueError, ValidationError) as error:
            raise RunError(f"{path} is not a record of version 0.2: {error}", "take it away") from None


def _study(content: Mapping[str, Any]) -> Study:
    """Final runs of studies whose trials had a budget together went on to the end."""
    config = dict(content["config"])
    effort = config.get("effort", {})
    if effort:
        config["effort"] = {key: effort[key] for key in Effort.model_fields if key in effort}
    made = Study.model_validate({k: v for k, v in content.items() if k != "trials_of"} | {"config": config})
    if "budget" in effort:
        config |= {"preset_rounds": length(made).get("rounds"), "preset_patience": None}
    return made.model_copy(update={"config": config})
