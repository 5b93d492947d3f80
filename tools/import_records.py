"""Read the records of version 0.2, a JSON file each, into tables, and remove the files.

python tools/import_records.py                      all that are under experiments/records
python tools/import_records.py FOLDER TABLE.parquet those of one folder, which is left as it is
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

from solera.study.old_records import import_folder
from solera.study.records import Store
from solera_research.inference.records import AttackRecord
from solera_research.poisoning.records import PoisonRecord
from solera_research.records import Measured
from solera_research.scale.records import ScaleRecord

RECORDS = Path(__file__).parents[1] / "experiments" / "records"
KINDS: dict[str, Any] = {"attacks": AttackRecord, "poisoning": PoisonRecord, "scale": ScaleRecord}
MEASURED = ("authors", "content", "privacy-size")


def read(folder: Path, table: Path) -> int:
    """Add the records of a folder to a table, by the folder's name; return their number."""
    if folder.name not in (*KINDS, *MEASURED):
        return import_folder(folder, table)
    paths, kind = sorted(folder.rglob("*.json")), KINDS.get(folder.name, Measured)
    contents = [json.loads(path.read_bytes()) for path in paths]
    if kind is Measured:
        keys = [path.relative_to(folder).with_suffix("").as_posix() for path in paths]
        contents = [{"key": key, "content": each} for key, each in zip(keys, contents, strict=True)]
    Store(table, kind).add(*map(kind.model_validate, contents))
    return len(paths)


def main(arguments: list[str]) -> None:
    """Read one folder, or all."""
    if arguments:
        print(read(Path(arguments[0]), Path(arguments[1])))
        return
    for folder in sorted(path for path in RECORDS.iterdir() if path.is_dir() and any(path.rglob("*.json"))):
        print(read(folder, folder.with_name(f"{folder.name}.parquet")), folder.name)
        shutil.rmtree(folder)


if __name__ == "__main__":
    main(sys.argv[1:])
