"""What ranks send each other: tensors, and JSON that describes them."""

from __future__ import annotations

import json

import pytest
import torch
import torch.distributed as dist

from solera.core.errors import RunError
from solera.core.tensor_files import DTYPES
from solera.engine import ranks as module
from solera.engine.ranks import MOST_ABOUT, MOST_BYTES, Ranks, _parsed
from two_ranks import two_ranks

EXCHANGE = """
import torch
from solera.engine.ranks import Ranks

ranks = Ranks.joined()
own = {
    "numbers": torch.arange(6, dtype=torch.float64).reshape(2, 3).T + ranks.rank,
    "none": torch.zeros(0, 4),
    "scalar": torch.tensor(ranks.rank, dtype=torch.int16),
    f"only {ranks.rank}": torch.tensor([True, False]),
}

def shown(tensors):
    return {name: (str(each.dtype), each.tolist()) for name, each in tensors.items()}

print(*map(shown, ranks.gathered(own)), sep="\\n")
print(*map(shown, ranks.gathered_by_first(own)), sep="\\n")
print(shown(ranks.from_first(own if ranks.rank == 0 else None)))
print(ranks.any(ranks.rank == 1), ranks.any(False))
"""


def of_rank(rank: int) -> str:
    return str(
        {
            "numbers": (
                "torch.float64",
                [[0.0 + rank, 3.0 + rank], [1.0 + rank, 4.0 + rank], [2.0 + rank, 5.0 + rank]],
            ),
            "none": ("torch.float32", []),
            "scalar": ("torch.int16", rank),
            f"only {rank}": ("torch.bool", [True, False]),
        }
    )


def test_two_real_ranks_exchange_tensors():
    """Of other names, shapes and types on each of them."""
    first, second = (said.splitlines() for said in two_ranks(EXCHANGE, EXCHANGE))
    both = [of_rank(0), of_rank(1)]
    assert first == [*both, *both, of_rank(0), "True False"]
    assert second == [*both, "", of_rank(0), "True False"]


@pytest.fixture
def alone(tmp_path):
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield Ranks(0, 1)
    dist.destroy_process_group()


def test_descriptions_have_a_largest_size(alone, monkeypatch):
    tensors = {"x" * 100: torch.ones(1)}
    assert alone.gathered(tensors) == [tensors]
    monkeypatch.setattr(module, "MOST_ABOUT", 100)
    with pytest.raises(RunError, match="rank 0 sent"):
        alone.gathered(tensors)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_type_has_a_description(alone, dtype):
    [found] = alone.gathered({"x": torch.ones(3, dtype=dtype)})
    told = _parsed(0, json.dumps({"x": (DTYPES[dtype], (3,))}).encode())
    assert told == {"x": (found["x"].dtype, found["x"].shape)}


@pytest.mark.parametrize(
    "about",
    [
        b"",
        b"\x80\x04\x95",
        b"[]",
        b"[" * MOST_ABOUT,
        b'{"x": null}',
        b'{"x": ["F32"]}',
        b'{"x": ["F99", [1]]}',
        b'{"x": ["F32", [-1]]}',
        b'{"x": ["F32", [1.5]]}',
        b'{"x": ["F32", [1e400]]}',
        b'{"x": ["F32", [1, 1, 1, 1, 1, 1, 1, 1, 1]]}',
        f'{{"x": ["F64", [{MOST_BYTES // 8 + 1}]]}}'.encode(),
        f'{{"x": ["F64", [{10**4000}]]}}'.encode(),
        f'{{"x": ["U8", [{MOST_BYTES}]], "y": ["U8", [1]]}}'.encode(),
    ],
    ids=lambda about: repr(about[:40]),
)
def test_what_describes_no_tensors_is_refused(about):
    with pytest.raises(RunError, match="rank 3 sent something that no rank of this version sends") as found:
        _parsed(3, about)
    assert "same version" in found.value.hint
