"""Rows of clients in checkpoints: a file for every segment, written once and linked by later checkpoints.

rows/LEAF.NAME.safetensors   a segment: items and values of some clients
last-rows.json               the names of the last state's segments, by leaf; best-rows.json: of the best
last-rows.safetensors        where each client's rows are
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file

from solera.core.files import write_atomically
from solera.core.leaf import Params
from solera.core.tensor_files import write_tensors
from solera.engine.row_store import RowStore, Segment

_FOLDER = "rows"


def write_rows(folder: Path, prefix: str, stores: Mapping[str, RowStore], before: Path | None) -> None:
    """Write stores to a checkpoint. Segments that the checkpoint `before` has are linked, not written."""
    (folder / _FOLDER).mkdir(exist_ok=True)
    names: dict[str, list[str]] = {}
    places: Params = {}
    for leaf, store in stores.items():
        segments, index = store.parts()
        names[leaf] = list(segments)
        places |= {f"{leaf}/{part}": value for part, value in index.items()}
        for name, segment in segments.items():
            file = f"{_FOLDER}/{leaf}.{name}.safetensors"
            if (folder / file).exists():  # the other state has it too
                continue
            if before and (before / file).exists():
                _link(before / file, folder / file)
            else:
                write_tensors(folder / file, {"items": segment.items, "values": segment.values})
    write_tensors(folder / f"{prefix}rows.safetensors", places)
    write_atomically(folder / f"{prefix}rows.json", json.dumps(names))


def _link(old: Path, new: Path) -> None:
    try:
        os.link(old, new)
    except OSError:  # not every file system has links
        shutil.copyfile(old, new)


def read_rows(folder: Path, prefix: str) -> Params:
    """All rows as tensors, named as in `PersonalStore.tensors`. Empty if the checkpoint has none."""
    if not (folder / f"{prefix}rows.json").exists():
        return {}
    found: Params = {}
    places = load_file(folder / f"{prefix}rows.safetensors")
    for leaf, names in json.loads((folder / f"{prefix}rows.json").read_text(encoding="utf-8")).items():
        files = (load_file(folder / _FOLDER / f"{leaf}.{name}.safetensors") for name in names)
        segments = [Segment(name, f["items"], f["values"]) for name, f in zip(names, files, strict=True)]
        index = {part: places[f"{leaf}/{part}"] for part in ("where", "start", "count")}
        store = RowStore.of_parts(segments, index, torch.device("cpu"))
        found |= {f"{leaf}/{part}": value for part, value in store.tensors().items()}
    return found
