"""A stranger who takes the place of a rank in a run on several machines."""

from __future__ import annotations

import pickle

import pytest
from attack import attack
from evil_rank import Payload

from two_ranks import two_ranks

HONEST = """
import torch
from solera.core.errors import SoleraError
from solera.engine.ranks import Ranks

ranks = Ranks.joined()
print("joined as", ranks.rank)
try:
    ranks.{call}({{"loss": torch.ones(2)}})
except SoleraError as error:
    print(f"error: {{error.message}}; next: {{error.hint}}")
"""
EVIL = """
import sys
from evil_rank import attack

attack({folder!r})  # ends with sys.stdin.read()
"""


@pytest.mark.parametrize(
    ("call", "evil"),
    [
        ("gathered", 1),
        pytest.param("gathered_by_first", 1, marks=pytest.mark.slow),
        pytest.param("from_first", 0, marks=pytest.mark.slow),
    ],
    ids=lambda each: f"{each}",
)
@attack(
    "stranger",
    "A program that takes the place of a rank runs no code in the other ranks.",
    before="a command of its own in every other rank, with all rights of the user who trains",
)
def test_a_rank_that_sends_a_pickle(tmp_path, call, evil, reached):
    """Before: the other ranks unpickled it. The same bytes do run code if they are unpickled."""
    folder = tmp_path / "made by the payload"
    programs = [HONEST.format(call=call), EVIL.format(folder=str(folder))]
    said = two_ranks(*(programs if evil else reversed(programs)))[1 - evil]
    assert f"joined as {1 - evil}" in said
    assert f"error: rank {evil} sent something that no rank of this version sends; next: start all" in said
    assert not folder.exists()

    # The control:
    pickle.loads(pickle.dumps(Payload(str(folder))))
    assert folder.is_dir()
    reached("an error that names the rank, and no code is run")
