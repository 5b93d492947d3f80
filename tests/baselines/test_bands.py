"""Measured figures as bands: leave-last-out, nothing leaks, HR@10 and NDCG@10 on the test items.

A federated method far above EASE on these is leaking until shown otherwise, so these must not drift.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from solera.baselines import Ease, Popularity
from solera.data.interactions import Interactions, history
from solera.evaluate import Evaluator, split

# Full ranking draws nothing, so its band is narrow; another seed moves the sampled figures by 0.005 or so.
BANDS = {
    ("ml-100k", Popularity): {"sampled99": (0.40, 0.22), "full": (0.082, 0.044)},
    ("ml-100k", Ease): {"sampled99": (0.660, 0.388), "full": (0.144, 0.080)},
    ("ml-1m", Popularity): {"sampled99": (0.45, 0.25), "full": (0.037, 0.018)},
    ("ml-1m", Ease): {"sampled99": (0.710, 0.446), "full": (0.108, 0.054)},
}
WIDTH = {"sampled99": 0.02, "full": 0.002}


@pytest.mark.parametrize(
    ("name", "baseline"),
    [pytest.param(*each, marks=pytest.mark.slow if each[0] == "ml-1m" else ()) for each in BANDS],
)
def test_measured_figures(
    name: str, baseline: type[Popularity] | type[Ease], dataset: Callable[[str], Interactions]
) -> None:
    parts = split(dataset(name), "strict")
    model, known = baseline.fit(parts), history(parts, "test")
    got = Evaluator(parts, seed=0).test(lambda users: model.scores(users, known))
    for kind, (hr, ndcg) in BANDS[name, baseline].items():
        figures = getattr(got, kind)
        assert figures["hr@10"] == pytest.approx(hr, abs=WIDTH[kind]), kind
        assert figures["ndcg@10"] == pytest.approx(ndcg, abs=WIDTH[kind]), kind


@pytest.mark.parametrize(
    ("name", "sampled", "full"),
    [
        ("ml-100k", (0.648, 0.378), (0.142, 0.079)),
        pytest.param("ml-1m", (0.705, 0.431), (0.099, 0.049), marks=pytest.mark.slow),
    ],
)
def test_ease_without_the_validation_item_in_its_input(
    name: str,
    sampled: tuple[float, float],
    full: tuple[float, float],
    dataset: Callable[[str], Interactions],
) -> None:
    """The usual way to score EASE, for comparison with other people's figures."""
    parts = split(dataset(name), "strict")
    model = Ease.fit(parts)
    got = Evaluator(parts, seed=0).test(lambda users: model.scores(users, parts.train))
    assert (got.sampled99["hr@10"], got.sampled99["ndcg@10"]) == pytest.approx(
        sampled, abs=WIDTH["sampled99"]
    )
    assert (got.full["hr@10"], got.full["ndcg@10"]) == pytest.approx(full, abs=WIDTH["full"])
