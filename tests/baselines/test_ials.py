from __future__ import annotations

import sys
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from planted import blocks

from solera.baselines import Epoch
from solera.baselines.ials import IALS, IALSConfig
from solera.core.errors import ConfigError
from solera.data.interactions import history
from solera.data.ragged import Ragged
from solera.evaluate import Evaluator, split

USERS = np.arange(80)


@pytest.fixture(autouse=True)
def library() -> None:
    pytest.importorskip("implicit", reason="needs the ials extra")


def test_a_user_is_solved_for_in_closed_form() -> None:
    """(QᵀQ + (alpha − 1) Q_uᵀQ_u + reg·I) p_u = alpha · Q_uᵀ1, from the given history; items count once."""
    parts = split(blocks(), "strict")
    model = IALS.fit(parts, IALSConfig(embedding_size=5, reg=0.7, alpha=3.0))
    q = torch.from_numpy(model.model.item_factors).double()
    given = Ragged.from_lists([[4, 9, 30, 9]] + [[]] * 79)
    own = q[[4, 9, 30]]
    p = torch.linalg.solve(q.T @ q + 2 * own.T @ own + 0.7 * torch.eye(5), 3 * own.sum(0))
    got = model.scores(np.array([0, 1]), given)
    assert torch.allclose(got[0].double(), q @ p, atol=1e-4)
    assert got[1].abs().max() == 0


def test_learns_planted_blocks() -> None:
    """Chance is 0.125, and 1.0 can be reached."""
    parts = split(blocks(), "strict")
    model, known = IALS.fit(parts, IALSConfig(embedding_size=4, reg=0.1)), history(parts, "test")
    assert Evaluator(parts, 0).test(lambda users: model.scores(users, known)).full["hr@5"] > 0.95


def test_the_seed_decides_and_held_out_items_do_not() -> None:
    parts = split(blocks(), "strict")
    other = Ragged.from_lists([[u % 48] for u in range(80)])
    leaky = replace(parts, validation=other, test=other, excluded=parts.train.concat(other).sorted_unique())
    first, again, different = (
        IALS.fit(which, IALSConfig(embedding_size=8), seed).scores(USERS, parts.train)
        for which, seed in ((parts, 1), (leaky, 1), (parts, 2))
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, different)


def test_progress_and_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every epoch is reported; the library finds nothing to say about BLAS's threads, and has one itself."""
    import implicit.utils

    monkeypatch.setattr(implicit.utils, "_checked_blas_config", False)
    seen: list[Epoch] = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = IALS.fit(split(blocks(), "strict"), IALSConfig(epochs=3), 0, seen.append)
    assert seen == [Epoch(1, 3, None), Epoch(2, 3, None), Epoch(3, 3, None)]
    assert model.model.num_threads == 1


def test_without_the_library_there_is_a_next_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "implicit.cpu.als", None)
    with pytest.raises(ConfigError, match="implicit is not installed") as caught:
        IALS.fit(split(blocks(), "strict"))
    assert caught.value.hint == "pip install 'solera[ials]'"
