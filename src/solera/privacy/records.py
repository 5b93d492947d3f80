"""Records of attacks: one small JSON file for a method and what protects its uploads.

attacks/<data set>/<method>--<protection>.json
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from solera.core.errors import RunError
from solera.privacy.figures import Finding


class AttackRecord(BaseModel):
    """What was attacked, by which command and program, and all that was found."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    format: Literal[1] = 1
    command: str
    method: str
    protection: str
    dataset: str
    protocol: str
    seed: int
    config: dict[str, Any]
    environment: dict[str, Any]
    code: dict[str, Any]
    findings: tuple[Finding, ...]

    @property
    def name(self) -> str:
        """Its file, within the folder of attacks."""
        what = "--".join(re.sub(r"[^a-z0-9.+=]+", "-", x.lower()) for x in (self.method, self.protection))
        return f"{self.dataset}/{what}.json"

    def find(self, attack: str, rounds: tuple[int, int], summed: int = 1) -> Finding | None:
        """What an attack found in one kind of thing."""
        wanted = (attack, *rounds, summed)
        return next(
            (f for f in self.findings if (f.attack, f.first_round, f.last_round, f.summed) == wanted), None
        )

    @property
    def last_round(self) -> int:
        """The last that was attacked."""
        return max(finding.last_round for finding in self.findings)


def write(record: AttackRecord, folder: Path) -> Path:
    """One line per field and per finding, so that a change can be read; whole or not at all."""
    fields: Mapping[str, Any] = record.model_dump(mode="json")
    lines = [f"  {json.dumps(key)}: {_value(value)}" for key, value in fields.items()]
    path = folder / record.name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f".{path.name}.partial")
        partial.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        raise RunError(f"{path} cannot be written: {error.strerror}", "give another --record") from None
    return path


def _value(value: Any) -> str:
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return "[\n    " + ",\n    ".join(json.dumps(each) for each in value) + "\n  ]"
    return json.dumps(value, ensure_ascii=False)


def read_all(folder: Path) -> Sequence[AttackRecord]:
    """All records in a folder, by name; none if there is no such folder."""
    return [_read(path) for path in sorted(folder.rglob("*.json"))]


def _read(path: Path) -> AttackRecord:
    try:
        return AttackRecord.model_validate_json(path.read_bytes())
    except ValidationError as error:
        wrong = error.errors()[0]
        where = "".join(f"{part}: " for part in wrong["loc"])
        hint = "take it away, or make it anew with `solera attack … --record`"
        raise RunError(f"{path} is not an attack's record: {where}{wrong['msg']}", hint) from None
