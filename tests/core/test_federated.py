"""Trained and solved methods answer the same questions."""

from __future__ import annotations

import pytest

from solera.core.leaf import Home
from solera.methods import find, names


@pytest.mark.parametrize("name", names())
def test_every_method_is_one_of_a_kind(name: str) -> None:
    method = find(name)
    assert list(method.choices) == ["scorer", "view", "loss", "update", "aggregate"]
    shapes = method.shared_shapes(7)
    shared = {leaf.name for leaf in method.select(home=Home.SHARED)}
    assert set(shapes) == (shared or set(shapes))
    assert method.tailored <= set(shapes)
    if method.rounds_needed == 1:
        assert (method.leaves, method.client_share, set(shapes)) == ((), 1.0, {"weights"})


def test_who_is_served_from_history_alone() -> None:
    served = {name for name in names() if find(name).serves_from_history}
    assert served == {"fedease", "fedslist", "fedhist", "fedsasrec"}


def test_whose_server_needs_single_uploads() -> None:
    single = {name for name in names() if not find(name).sums_alone}
    assert {"fedem", "fedfast", "gpfedrec", "perfedrec", "pfedgraph"} <= single
    assert not {"fedmf", "pfedrec", "fedease", "fedhist"} & single
