"""Records of poisoned trainings: one small JSON file each.

poisoning/<data set>/<method>--<attack>-<share>--<defence>.json
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from solera.core.types import Frozen
from solera_research.poisoning.experiment import AttackPlan, Outcome
from solera_research.records import file_name, read_records, write_record


class PoisonRecord(Frozen):
    """Settings, command, program and result of one poisoned training."""

    format: Literal[1] = 1
    command: str
    method: str
    defence: str
    dataset: str
    protocol: str
    seed: int
    plot: AttackPlan
    outcome: Outcome
    config: dict[str, Any]
    environment: dict[str, Any]
    code: dict[str, Any]

    @property
    def name(self) -> str:
        """Path of the record within its folder."""
        share = f"-{self.plot.malicious:g}x{self.plot.boost:g}" if self.outcome.malicious_clients else ""
        return file_name(self.dataset, self.method, self.plot.attack + share, self.defence)


def write(record: PoisonRecord, folder: Path) -> Path:
    """Write the record to its place in the folder."""
    return write_record(record, folder / record.name)


def read_all(folder: Path) -> Sequence[PoisonRecord]:
    """All records in a folder, by name; none if there is no such folder."""
    return read_records(folder, PoisonRecord, "a record of poisoning", "solera poison")
