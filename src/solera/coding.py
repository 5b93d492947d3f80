"""Shorter forms of what clients send and receive: 8-bit integers, and the rows that changed most.

`Int8` and `LargestRows` code uploads, `Int8Download` the tables that clients download; `--upload` and
`--download` name them. What an upload leaves out stays on the client and is added to its next one.

Codings of uploads are positively homogeneous: the coding of c · x is c times that of x, in as many bytes. So
a client may clip after coding, which bounds what the server decodes. None of them draws random numbers, and a
client's result does not depend on the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from solera.core.closed_form import AnyMethod
from solera.core.errors import ConfigError
from solera.core.leaf import Home, Leaf, Params
from solera.core.method import Method
from solera.core.protection import Download, UploadCoding
from solera.core.types import Ints
from solera.core.upload import Upload, upload_bytes

FLOAT, ROW_ID = 4, 4  # bytes on the wire: float32 values, 32-bit row numbers
_LEVELS = 127  # of int8, on either side of zero
_UPLOADS = "use int8 or top-k:0.1"
_REMOVED = {
    "upload": {"low-rank", "sketch"},
    "download": {"pq", "rq", "delta", "slice", "own"},
}
_NOT_MASKED = {
    "int8": "masks hide sums of integers of one scale, and int8 has a scale for every row of every client",
    "top-k": "under masks a client sends every row, so that nobody sees which rows it touched",
}


def quantised(values: Tensor) -> tuple[Tensor, Tensor]:
    """Rows [n, m] as int8, and the scale [n] of each row in single precision."""
    scales = (values.abs().amax(1) / _LEVELS).float()
    divisors = torch.where(scales > 0, scales, 1.0).to(values.dtype)
    codes = (values / divisors.unsqueeze(1)).round_().clamp_(-_LEVELS, _LEVELS)
    return codes.to(torch.int8), scales


def in_8_bits(values: Tensor) -> Tensor:
    """Rows [n, …] as they are decoded from 8-bit integers, with one scale for each row."""
    codes, scales = quantised(values.flatten(1))
    return (codes.to(values.dtype) * scales.to(values.dtype).unsqueeze(1)).view(values.shape)


@dataclass(frozen=True)
class Int8:
    """Every row as 8-bit integers with one scale, rounded to the nearest."""

    def coded(self, upload: Upload, leaves: tuple[Leaf, ...]) -> Upload:
        """Every number rounded to a multiple of its row's largest / 127."""
        changes = {name: in_8_bits(change) for name, change in upload.changes.items()}
        return Upload(upload.rows, upload.row_counts, changes)

    def bytes_per_client(self, sent: Upload, leaves: tuple[Leaf, ...]) -> Ints:
        """One byte per number, the scales, and the row numbers."""
        rows = sent.row_counts.cpu().numpy().astype(np.int64)
        per_row = sum(leaf.size + FLOAT for leaf in _tables(leaves))
        fixed = sum(leaf.size + FLOAT for leaf in leaves if leaf.sent_as and not leaf.per_item)
        return rows * (per_row + ROW_ID if per_row else 0) + fixed


@dataclass(frozen=True)
class LargestRows:
    """A share of each client's rows, those of the largest norm over all tables."""

    share: float

    def coded(self, upload: Upload, leaves: tuple[Leaf, ...]) -> Upload:
        """The upload without the other rows. Of equal rows the one with the lower number comes first."""
        per_item = [leaf.sent_as for leaf in _tables(leaves)]
        if not per_item:
            return upload
        squares = sum(upload.changes[name].double().flatten(1).square().sum(1) for name in per_item)
        assert isinstance(squares, Tensor)
        counts = upload.row_counts.to(squares.device)
        owner = torch.arange(len(counts), device=counts.device).repeat_interleave(counts)
        order = torch.argsort(squares, descending=True, stable=True)
        order = order[torch.argsort(owner[order], stable=True)]  # client after client, largest first
        rank = torch.arange(len(order), device=order.device) - (counts.cumsum(0) - counts)[owner]
        kept_counts = torch.ceil(counts * self.share).long()
        kept = order[rank < kept_counts[owner]].sort().values
        changes = {name: v[kept] if name in per_item else v for name, v in upload.changes.items()}
        return Upload(upload.rows[kept], kept_counts.to(upload.row_counts.device), changes)

    def bytes_per_client(self, sent: Upload, leaves: tuple[Leaf, ...]) -> Ints:
        """Numbers and values of the rows that are left."""
        return upload_bytes(sent.row_counts, leaves)


@dataclass(frozen=True)
class Int8Download:
    """The shared tables of a method, and the matrices of its network, in 8 bits a number.

    Clients know the first tables, because they follow from the seed. What is coded is the change since then.
    """

    method: Method
    seed: int

    def _leaves(self) -> Iterator[tuple[Leaf, bool]]:
        """The shared leaves that are sent, and whether each is coded."""
        for leaf in self.method.select(home=Home.SHARED):
            if not leaf.derived_from:
                yield leaf, leaf.per_item or len(leaf.shape) == 2

    def received(self, shared: Params) -> Params:
        """The shared leaves as clients decode them. Derived leaves follow from these."""
        seen = dict(shared)
        for leaf, coded in self._leaves():
            if coded:
                initial = _initial(leaf, len(shared[leaf.name]), self.seed).to(shared[leaf.name])
                seen[leaf.name] = initial + in_8_bits(shared[leaf.name] - initial)
        return seen

    def bytes_per_client(self, n_items: int) -> float:
        """One byte per number and a scale per row of what is coded; the other leaves as they are."""
        total = 0
        for leaf, coded in self._leaves():
            if not coded:
                total += FLOAT * leaf.size
            elif leaf.per_item:
                total += n_items * (leaf.size + FLOAT)
            else:
                total += leaf.size + FLOAT * leaf.shape[0]
        return float(total)


@lru_cache(maxsize=4)
def _initial(leaf: Leaf, n_items: int, seed: int) -> Tensor:
    return leaf.initial(n_items, seed)


def _tables(leaves: tuple[Leaf, ...]) -> Iterator[Leaf]:
    return (leaf for leaf in leaves if leaf.sent_as and leaf.per_item)


def upload_coding(text: str) -> UploadCoding:
    """The coding that `--upload` names."""
    kind, _, amount = text.partition(":")
    if text == "int8":
        return Int8()
    if kind == "top-k":
        return LargestRows(_share(amount, text))
    raise _unknown(text, "upload", _UPLOADS)


def download_coding(text: str, method: Method, seed: int) -> Download:
    """The coding that `--download` names."""
    if text == "int8":
        return Int8Download(method, seed)
    raise _unknown(text, "download", "use int8")


def check_upload(
    text: str, method: AnyMethod, *, masked: bool, noise: Literal["central", "local", "distributed"] | None
) -> None:
    """Raise an error if uploads of this method or with this protection cannot be coded like this."""
    upload_coding(text)
    if method.one_round:
        raise _refusal(method, "upload", "it sends sums over a history, not changes of trained tables")
    if not any(leaf.sent_as for leaf in method.leaves):
        raise _refusal(method, "upload", "its clients send nothing")
    source = method.aggregate.source
    if source and any(leaf.feeds == source for leaf in method.leaves):
        raise _refusal(method, "upload", "its server mixes the clients' tables as they are on the clients")
    if masked:
        raise ConfigError(
            f"--upload {text} cannot be combined with --secure-aggregation: "
            f"{_NOT_MASKED[text.partition(':')[0]]}",
            "omit one of them",
        )
    if noise in ("local", "distributed"):
        raise ConfigError(
            f"--upload {text} cannot be combined with --dp mode={noise}: clients add noise to every number "
            "of the whole tables, and a coding would remove it again",
            "use mode=central, or omit --upload",
        )


def check_download(text: str, method: AnyMethod) -> None:
    """Raise an error if downloads of this method cannot be coded like this."""
    if method.one_round:
        raise _refusal(method, "download", "its clients download nothing before they send their sums")
    download_coding(text, method, 0)
    if method.tailored:
        raise _refusal(method, "download", "every client downloads a table of its own")
    if not method.select(home=Home.SHARED, per_item=True):
        raise _refusal(method, "download", "it has no shared item table")


def _refusal(method: AnyMethod, option: str, why: str) -> ConfigError:
    return ConfigError(f"--{option} cannot be used with {method.name!r}: {why}", f"omit --{option}")


def _share(amount: str, text: str) -> float:
    try:
        share = float(amount)
    except ValueError:
        share = 0.0
    if not 0 < share < 1:
        raise ConfigError(f"--upload {text} needs a share between 0 and 1", _UPLOADS)
    return share


def _unknown(text: str, option: str, hint: str) -> ConfigError:
    if {part.partition(":")[0] for part in text.split("+")} & _REMOVED[option]:
        return ConfigError(f"--{option} {text} was removed in version 0.3: no deployment used it", hint)
    return ConfigError(f"{text!r} is not a valid --{option}", hint)
