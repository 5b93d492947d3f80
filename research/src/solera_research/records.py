"""Records of experiments: small JSON files with readable diffs, and what each says of its making."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from solera.core.errors import RunError
from solera.core.files import write_atomically
from solera.runs import RunConfig
from solera.runs.environment import environment
from solera.study.provenance import anonymous, source
from solera.study.records import asked

Record = TypeVar("Record", bound=BaseModel)


def file_name(dataset: str, *parts: str) -> str:
    """Path of a record within its folder, by data set and distinguishing settings."""
    named = "--".join(re.sub(r"[^a-z0-9.+=]+", "-", part.lower()) for part in parts)
    return f"{dataset}/{named}.json"


def write_record(record: BaseModel, path: Path) -> Path:
    """Write a record atomically, with one line per field and per entry of a list of objects."""
    fields = record.model_dump(mode="json").items()
    lines = [f"  {json.dumps(key)}: {_value(value)}" for key, value in fields]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, "{\n" + ",\n".join(lines) + "\n}\n")
    except OSError as error:
        raise RunError(f"{path} cannot be written: {error.strerror}", "give another --record") from None
    return path


def _value(value: Any) -> str:
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return "[\n    " + ",\n    ".join(json.dumps(each) for each in value) + "\n  ]"
    return json.dumps(value, ensure_ascii=False)


def read_records(folder: Path, kind: type[Record], what: str, command: str) -> Sequence[Record]:
    """All records in a folder, by name; none if there is no such folder. The command makes such records."""
    return [_read(path, kind, what, command) for path in sorted(folder.rglob("*.json"))]


def _read(path: Path, kind: type[Record], what: str, command: str) -> Record:
    try:
        return kind.model_validate_json(path.read_bytes())
    except ValidationError as error:
        wrong = error.errors()[0]
        where = "".join(f"{part}: " for part in wrong["loc"])
        hint = f"take it away, or make it anew with `{command} … --record`"
        raise RunError(f"{path} is not {what}: {where}{wrong['msg']}", hint) from None


def made_by(config: RunConfig, threads: int) -> dict[str, Any]:
    """Command, settings, machine and version, without paths and host names."""
    wanted = asked(config.full_method, config)
    words = (Path(word).name if Path(word).is_absolute() else word for word in sys.argv[1:])
    return {
        "command": shlex.join(["solera", *words]),
        "dataset": wanted.dataset,
        "protocol": config.protocol,
        "seed": config.seed,
        "config": wanted.config,
        "environment": anonymous(environment(threads, "cpu")),
        "code": source().model_dump(),
    }
