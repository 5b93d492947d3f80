"""What a client receives: coded tables, whole, since its last round, or a slice with the rows it asks for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from solera.coding.tables import Int8Table, TableCoding, Whole
from solera.coding.uploads import FLOAT, ROW_ID
from solera.core.arrays import Ints
from solera.core.method import Method
from solera.core.spec import Home, Leaf, Params

_PREFIX = "download."
_MATRICES = Int8Table()
_VERSION, _CHANGED, _SEEN, _TOUCHED = (
    f"{_PREFIX}{name}" for name in ("version", "changed", "seen", "touched")
)


@dataclass(frozen=True)
class CodedDownload:
    """The shared tables of a method in a coded form, and with them the matrices of its network.

    Clients know the tables before the first round, because they follow from the seed. So what is coded is the
    change since then, except for tables that are sent as they are. With `delta`, a client that has an earlier
    version receives only the rows whose codes have changed since, and a bit per item that says which these
    are. With `slice_` below 1 it receives this share of the items, those that most clients have changed so
    far, and asks for the other rows it needs by their numbers. With `exact_rows` it asks for all rows it
    trains on, in single precision, and uses the coded tables only to serve.
    """

    method: Method
    tables: TableCoding
    seed: int
    delta: bool = False
    slice_: float = 1.0
    exact_rows: bool = False

    def _leaves(self) -> Iterator[Leaf]:
        return (leaf for leaf in self.method.select(home=Home.SHARED) if not leaf.derived_from)

    def _coded(self) -> list[Leaf]:
        return [leaf for leaf in self._leaves() if leaf.per_item]

    def _matrices(self) -> list[Leaf]:
        """Matrices of networks, which are sent in 8 bits a number if tables are coded."""
        if isinstance(self.tables, Whole):
            return []
        return [leaf for leaf in self._leaves() if not leaf.per_item and len(leaf.shape) == 2]

    def _codings(self) -> Iterator[tuple[Leaf, TableCoding]]:
        yield from ((leaf, self.tables) for leaf in self._coded())
        yield from ((leaf, _MATRICES) for leaf in self._matrices())

    def _parts(self, memory: Params, leaf: Leaf) -> Params:
        start = f"{_PREFIX}{leaf.name}."
        return {name.removeprefix(start): v for name, v in memory.items() if name.startswith(start)}

    def _initial(self, leaf: Leaf, shared: Params) -> Tensor | float:
        if isinstance(self.tables, Whole):
            return 0.0
        return _initial(leaf, len(shared[leaf.name]), self.seed).to(shared[leaf.name])

    def memory(self, shared: Params, n_clients: int) -> Params:
        """The first version, which nobody has seen."""
        n_items = len(shared[self._coded()[0].name])
        memory = self._tables({}, shared, 0) | {_VERSION: torch.tensor(0)}
        if self.delta:
            memory[_CHANGED] = torch.zeros(n_items, dtype=torch.int64)
            memory[_SEEN] = torch.full((n_clients,), -1)
        if self.slice_ < 1:
            memory[_TOUCHED] = torch.zeros(n_items, dtype=torch.float64)
        return memory

    def _tables(self, memory: Params, shared: Params, version: int) -> Params:
        return {
            f"{_PREFIX}{leaf.name}.{part}": value
            for leaf, coding in self._codings()
            for part, value in coding.coded(
                leaf, shared[leaf.name] - self._initial(leaf, shared), self._parts(memory, leaf), version
            ).items()
        }

    def renewed(self, memory: Params, shared: Params, row_weights: Tensor) -> Params:
        """The next version."""
        version = int(memory[_VERSION]) + 1
        after = memory | self._tables(memory, shared, version) | {_VERSION: torch.tensor(version)}
        if self.delta:
            changed = torch.zeros(len(row_weights), dtype=torch.bool)
            for leaf in self._coded():
                versions = (self.tables.rows(self._parts(each, leaf)) for each in (memory, after))
                for old, new in zip(*versions, strict=True):
                    changed |= (old != new).view(len(old), -1).any(1).cpu()
            after[_CHANGED] = torch.where(changed, version, memory[_CHANGED].cpu())
        if self.slice_ < 1:
            after[_TOUCHED] = memory[_TOUCHED] + row_weights.to(memory[_TOUCHED])
        return after

    def received(self, shared: Params, memory: Params) -> Params:
        """The shared leaves as clients decode them. Derived leaves follow from these."""
        return shared | {
            leaf.name: self._initial(leaf, shared)
            + coding.decoded(self._parts(memory, leaf), shared[leaf.name])
            for leaf, coding in self._codings()
        }

    def _row_bytes(self, n_items: int) -> tuple[int, int]:
        """Bytes of an item's rows in all tables, and of all that is not a row."""
        sizes = [self.tables.sizes(leaf, n_items) for leaf in self._coded()]
        matrices = self._matrices()
        others = [leaf for leaf in self._leaves() if not leaf.per_item and leaf not in matrices]
        whole = FLOAT * sum(leaf.size for leaf in others)
        whole += sum(leaf.size + FLOAT * leaf.shape[0] for leaf in matrices)
        return sum(row for row, _ in sizes), sum(rest for _, rest in sizes) + whole

    def sent(self, memory: Params, clients: Ints, n_items: int) -> tuple[float, Params]:
        """Mean bytes down, before rows that clients ask for, and the changed state."""
        row, rest = self._row_bytes(n_items)
        if self.slice_ < 1:
            return self._most(n_items) * (row + ROW_ID) + rest, {}
        whole = n_items * row + rest
        if not self.delta:
            return whole, {}
        who, seen = torch.from_numpy(clients), memory[_SEEN].cpu().clone()
        changes = memory[_CHANGED].cpu().sort().values
        later = n_items - torch.searchsorted(changes, seen[who], right=True)
        each = torch.where(seen[who] < 0, whole, (-(-n_items // 8) + later * row + rest).clamp(max=whole))
        seen[who] = int(memory[_VERSION])
        return float(each.double().mean()) if len(who) else 0.0, {_SEEN: seen}

    def _most(self, n_items: int) -> int:
        return max(1, round(self.slice_ * n_items))

    def asked(self, memory: Params, rows: Tensor) -> tuple[int, int]:
        """Bytes up and down for those of the given rows that clients ask for."""
        if self.exact_rows:
            size = FLOAT * sum(leaf.size for leaf in self._coded())
            return len(rows) * ROW_ID, len(rows) * size
        outside = self.out_of_reach(memory)
        if outside is None:
            return 0, 0
        asked = int(outside[rows.to(outside.device)].sum())
        return asked * ROW_ID, asked * self._row_bytes(len(outside))[0]

    def out_of_reach(self, memory: Params) -> Tensor | None:
        """Mask of the items outside the slice."""
        if self.slice_ >= 1:
            return None
        touched = memory[_TOUCHED]
        order = torch.argsort(touched, descending=True, stable=True)
        outside = torch.ones(len(touched), dtype=torch.bool, device=touched.device)
        outside[order[: self._most(len(touched))]] = False
        return outside


@lru_cache(maxsize=4)
def _initial(leaf: Leaf, n_items: int, seed: int) -> Tensor:
    return leaf.initial(n_items, seed)
