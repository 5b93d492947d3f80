"""Records of attacks: one small JSON file per method and protection.

attacks/<data set>/<method>--<protection>.json
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from solera.core.types import Frozen
from solera_research.inference.figures import Finding
from solera_research.records import file_name, read_records, write_record


class AttackRecord(Frozen):
    """What was attacked, by which command and program, and all that was found."""

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
        """Path of the record within the folder of attacks."""
        return file_name(self.dataset, self.method, self.protection.replace("ε = ", "epsilon="))

    def find(self, attack: str, rounds: tuple[int, int], summed: int = 1) -> Finding | None:
        """What an attack found in one kind of thing."""
        wanted = (attack, *rounds, summed)
        return next(
            (f for f in self.findings if (f.attack, f.first_round, f.last_round, f.summed) == wanted), None
        )

    @property
    def last_round(self) -> int:
        """The last attacked round."""
        return max(finding.last_round for finding in self.findings)


def write(record: AttackRecord, folder: Path) -> Path:
    """Write the record to its place in the folder."""
    return write_record(record, folder / record.name)


def read_all(folder: Path) -> Sequence[AttackRecord]:
    """All records in a folder, by name; none if there is no such folder."""
    return read_records(folder, AttackRecord, "an attack's record", "solera attack")
