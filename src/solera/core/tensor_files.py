"""Write tensors to a safetensors file piece by piece.

The writer of the safetensors package first copies all tensors into one object. A state of many clients may be
larger than what is left of the memory.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from solera.core.files import replacing_file

DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint16: "U16",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


class Pieces(Protocol):
    """A tensor that is made piece by piece, along its first axis."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the whole."""
        ...

    @property
    def dtype(self) -> torch.dtype:
        """The type of its numbers."""
        ...

    def __iter__(self) -> Iterator[Tensor]:
        """The pieces, in order."""
        ...


Writable = Mapping[str, Tensor | Pieces]


def write_tensors(path: Path, tensors: Writable) -> None:
    """Write named tensors atomically, in the format of safetensors. Of pieces, one at a time is in memory."""
    header, end = {}, 0
    # Larger numbers first, to be aligned.
    order = sorted(tensors, key=lambda name: (-tensors[name].dtype.itemsize, name))
    for name in order:
        shape, dtype = tuple(tensors[name].shape), tensors[name].dtype
        start, end = end, end + torch.Size(shape).numel() * dtype.itemsize
        header[name] = {"dtype": DTYPES[dtype], "shape": shape, "data_offsets": (start, end)}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with replacing_file(path) as partial, partial.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name in order:
            whole = tensors[name]
            for piece in (whole,) if isinstance(whole, Tensor) else whole:
                file.write(piece.detach().cpu().contiguous().flatten().numpy().data)
