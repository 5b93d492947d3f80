"""The papers' figures, from rounds whose content is known, and from a training."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from in_process import solera
from made_ratings import write_ratings
from solera.data.datasets import load
from solera.runs import RunConfig
from solera_research.figures.course import train
from solera_research.figures.draw import (
    by_quarter,
    draw,
    project,
    trajectories,
    uploads,
    weights,
)
from solera_research.figures.tables import (
    SERVED,
    information_abundance,
    item_tables,
    principal_plane,
    singular_values,
)

USERS = np.array([7, 3, 11])


def walk(title: str, turn: float, rounds: int = 3) -> Any:
    """Users walk along (t, turn · t, 0, 0), times 1, 2 and 3."""
    steps = [np.array([number, turn * number, 0.0, 0.0]) for number in range(rounds + 1)]
    found = {n: {"users": USERS, "vectors": np.outer([1, 2, 3], step)} for n, step in enumerate(steps)}
    return SimpleNamespace(title=title, rounds=found)


def test_ways_in_one_plane():
    """All vectors lie in a plane, so that it keeps distances: √2 times 1, 2 and 3 a round."""
    made = list(trajectories([walk("one", 1.0), walk("two", -1.0)]))
    assert [each.name for each in made] == ["trajectory-1", "trajectory-2", "trajectory-3"]
    for far, (_, figure) in enumerate(made, start=1):
        [axes] = figure.axes
        one, other = (np.asarray(line.get_xydata()) for line in axes.lines)
        for way in (one, other):
            assert np.hypot(*np.diff(way, axis=0).T) == pytest.approx([far * 2**0.5] * 3)
        assert one[0] == pytest.approx(other[0])
        assert np.hypot(*(one[-1] - other[-1])) == pytest.approx(2 * 3 * far)
        assert "100%" in axes.get_xlabel()
    assert list(trajectories([walk("one", 1.0)])) == list(weights(walk("one", 1.0), 1)) == []


def test_means_of_quarters():
    """Eight users: the first two have values 4, 2, so 1 and a half; the last two 5, 5."""
    values = [np.array(pair, dtype=float) for pair in [(4, 2)] * 2 + [(3, 0)] * 4 + [(5, 5)] * 2]
    means = by_quarter(values)
    assert [list(each) for each in means] == [[1, 0.5], [1, 0], [1, 0], [1, 1]]
    assert [information_abundance(each) for each in means] == [1.5, 1, 1, 2]
    assert by_quarter(values[:3]) == []


def test_information_abundance_of_tables_that_are_known():
    """All directions alike: d. One direction: 1. Singular values 4, 2, 1: 7/4."""
    one = np.outer(np.arange(1.0, 8), [1.0, 2.0, 3.0])
    tables = ((np.eye(6)[:, :4], 4), (one, 1), (np.diag([1.0, 4.0, 2.0]), 7 / 4))
    for table, expected in tables:
        assert information_abundance(singular_values(table)) == pytest.approx(expected)
    table = np.random.default_rng(0).normal(size=(30, 5))
    assert singular_values(table) == pytest.approx(np.linalg.svd(table, compute_uv=False))


def test_the_principal_plane_of_points_on_a_line():
    """(t, 2t, 0): all variance on one direction, at distances t·√5 from the middle."""
    line = np.array([[t, 2.0 * t, 0.0] for t in (-1.0, 0.0, 1.0)])
    places, share = principal_plane(line)
    assert share == pytest.approx(1)
    assert np.abs(places[:, 0]) == pytest.approx(np.array([1, 0, 1]) * 5**0.5)
    assert places[:, 1] == pytest.approx(np.zeros(3), abs=1e-12)


def test_t_sne_keeps_apart_what_is_apart():
    """Two heaps of vectors: the nearest neighbour of every point is of its own heap."""
    rng = np.random.default_rng(0)
    heaps = np.repeat([0, 1], 30)
    vectors = rng.normal(size=(60, 8)) + 20 * heaps[:, None]
    places = project(vectors)
    distance = ((places[:, None] - places) ** 2).sum(-1) + np.diag(np.full(60, np.inf))
    assert (heaps[distance.argmin(1)] == heaps).all()
    assert (project(vectors) == places).all()
    assert project(np.eye(5)).shape == (5, 2)


@pytest.fixture(scope="module")
def data(tmp_path_factory):

    return load(
        str(write_ratings(tmp_path_factory.mktemp("data") / "r.csv", users=40, items=60, each=9, seed=1))
    )


def course_of(data, method: str):
    settings = RunConfig(method=method, dataset="r", rounds=2, options={"embedding_size": 4})
    return train(settings, data, threads=1)


def test_the_changes_of_matrix_factorization_tell_the_items_apart(data):
    """FedMF moves liked items along the user's vector and others against it: a line parts the two."""
    course = course_of(data, "fedmf")
    last = course.rounds[2]
    client = int(last["upload/client"])
    own = np.isin(last["upload/rows"], course.parts.train.row(client))
    towards = last["upload/items/change"] @ last["vectors"][list(last["users"]).index(client)]
    assert towards[own].min() > towards[~own].max()
    rows, change = uploads(course, 1)
    assert (rows.name, change.name) == ("upload-1-rows", "upload-1-change")
    others, mine = (np.asarray(each.get_offsets()) for each in change.figure.axes[0].collections)
    assert (len(mine), len(others)) == (own.sum(), (~own).sum())


@pytest.mark.slow
def test_spectra_are_those_of_the_tables_that_users_are_served_with(data):
    course = course_of(data, "fedrap")
    sizes, values = course.spectra[SERVED]
    assert len(values) == 32 and sizes == sorted(sizes)
    table = item_tables(course.simulation, course.middle)[SERVED]
    assert singular_values(table) == pytest.approx(np.linalg.svd(table, compute_uv=False))
    names = {each.name for each in draw([course])}
    assert {"owners-full", "sparsity", "table-1-1", "table-1-2", "item-map-1-3", "abundance"} <= names


@pytest.mark.slow
def test_the_command(tmp_path):
    path = write_ratings(tmp_path / "r.csv", users=20, items=30, each=8, seed=1)
    where = ("--data", path, "--rounds", 1, "--output", tmp_path / "figures", "-o", "embedding_size=4")
    done = solera("paper", "draw", "local", "fedmf", *where)
    assert done.returncode == 0, done.stderr
    assert {"trajectory-1.svg", "upload-2-rows.svg"} <= {
        path.name for path in (tmp_path / "figures").iterdir()
    }
