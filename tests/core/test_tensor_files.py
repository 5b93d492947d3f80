"""Files of tensors that are written piece by piece are what the safetensors package reads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import Tensor

from solera.core.tensor_files import write_tensors

TYPES = (
    torch.float64,
    torch.float32,
    torch.float16,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.bool,
)


class InPieces:
    """A tensor, some rows at a time."""

    def __init__(self, whole: Tensor, size: int) -> None:
        self._whole, self._size = whole, size
        self.shape, self.dtype = tuple(whole.shape), whole.dtype

    def __iter__(self) -> Iterator[Tensor]:
        return iter(torch.split(self._whole, self._size))


@given(
    shapes=st.dictionaries(st.text(max_size=5), st.tuples(st.integers(0, 4), st.integers(0, 3)), max_size=6),
    types=st.lists(st.sampled_from(TYPES), min_size=6, max_size=6),
)
def test_what_is_written_is_read(tmp_path_factory, shapes, types):
    made = {
        name: torch.randint(0, 2, shape).to(dtype)
        for (name, shape), dtype in zip(shapes.items(), types, strict=False)
        if name != "__metadata__"
    }
    path: Path = tmp_path_factory.mktemp("tensors") / "x.safetensors"
    write_tensors(path, made)
    found = load_file(path)
    assert found.keys() == made.keys()
    for name, value in made.items():
        assert found[name].dtype == value.dtype
        assert torch.equal(found[name], value)


@pytest.mark.parametrize("size", [1, 3, 100])
def test_pieces_make_the_whole(tmp_path, size):
    whole = torch.arange(70, dtype=torch.float32).view(10, 7)
    write_tensors(tmp_path / "x", {"b": InPieces(whole, size), "a": torch.tensor(5)})
    found = load_file(tmp_path / "x")
    assert torch.equal(found["b"], whole)
    assert found["a"].item() == 5


def test_a_view_and_a_table_with_two_names_are_written_whole(tmp_path):
    table = torch.arange(12.0).view(3, 4)
    write_tensors(tmp_path / "x", {"a": table, "b": table, "c": table.T})
    found = load_file(tmp_path / "x")
    assert torch.equal(found["a"], found["b"])
    assert torch.equal(found["c"], table.T)
