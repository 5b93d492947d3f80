"""Figures of what was recorded of single rounds, from records whose content is known."""

from __future__ import annotations

import random
import re
from dataclasses import replace

import numpy as np
import pytest
from made import ITEMS, MERGING, MIXING, USERS, write_rounds, write_run

import solera
from solera.report import make_page, read_runs
from solera.report.chart import Chart, Series
from solera.report.figures import make_figures
from solera.report.figures.merging import merging_weights
from solera.report.figures.mixing import mixing_weights
from solera.report.figures.skew import merging_limits, skews
from solera.report.figures.trajectories import trajectories
from solera.report.figures.uploads import uploads
from solera.report.heat import depths
from solera.report.svg import draw
from solera.runs.recorded import recorded_rounds
from solera.runs.recording import RecordFigures


@pytest.fixture
def two(tmp_path):
    """Users of the one run go to the right and up, those of the other to the right and down."""
    for seed, turn in ((0, 1.0), (1, -1.0)):
        write_run(tmp_path / f"run{seed}", seed=seed)
        write_rounds(tmp_path / f"run{seed}", turn)
    return read_runs([tmp_path / "run0", tmp_path / "run1"])


def test_ways_in_one_plane(two):
    """All vectors lie in a plane, so that it keeps distances: √2 times 1, 2 and 3 a round."""
    figures = trajectories(two)
    assert [figure.name for figure in figures] == ["trajectory-1-1", "trajectory-1-2", "trajectory-1-3"]
    for far, figure in enumerate(figures, start=1):
        one, other = figure.chart.series
        for each in (one, other):
            steps = np.hypot(np.diff(each.x), np.diff(each.y))
            assert steps == pytest.approx([far * 2**0.5] * 3)
            assert each.ring == 3 and each.names == ["round 0", "round 1", "round 2", "round 3"]
        assert (one.x[0], one.y[0]) == pytest.approx((other.x[0], other.y[0]))
        ends = np.hypot(one.x[-1] - other.x[-1], one.y[-1] - other.y[-1])
        assert ends == pytest.approx(2 * 3 * far)
        assert len(figure.rows) == 8
    assert "100%" in figures[0].caption


def test_one_way_alone_shows_nothing(two):
    assert trajectories(two[:1]) == []


def test_honest_and_leaky_ways_share_no_plane(tmp_path):
    for name, protocol in (("one", "strict"), ("two", "strict"), ("three", "paper")):
        write_run(tmp_path / name, protocol=protocol)
        write_rounds(tmp_path / name)
    made = make_figures(read_runs([tmp_path / name for name in ("one", "two", "three")]))["rounds"]
    ways = [figure for figure in made if figure.name.startswith("trajectory")]
    assert len(ways) == 3 and not any(each.leaky for figure in ways for each in figure.chart.series)


def test_weights_are_those_recorded(two):
    merging, mixing = merging_weights(two[:1]), mixing_weights(two[:1])
    assert [figure.name for figure in merging] == ["merging-1-1", "merging-1-3"]
    for figures, values in ((merging, MERGING), (mixing, MIXING)):
        for figure in figures:
            assert [row[0] for row in figure.rows] == [f"user {user}" for user in USERS]
            assert np.array([row[1:] for row in figure.rows]) == pytest.approx(np.array(values))
    assert merging[0].columns == ("", *(f"item {item}" for item in ITEMS))
    assert not merging[0].chart.log_y and mixing[0].chart.log_y  # 0.5 is 500 times 0.001


def test_skew_and_limits_are_those_recorded(tmp_path):
    """Two users and two rounds; the second user takes part in the second round only.

    Accumulated: ‖(1, 0)‖ = 1 after the first round; then ‖(1, 3)‖ and ‖(0, 2)‖, (√10 + 2) / 2 on average.
    """
    write_run(tmp_path / "run")
    rounds = {
        1: {
            "skew/users": np.array([7]),
            "skew/norms": np.array([[1.0, 2.0, 3.0, 4.0, 5.0]]),
            "skew/vectors": np.array([[1.0, 0.0]]),
            "skew/deviations": np.array([[1.0, 1.0, 3.0, 0.25]]),
        },
        2: {
            "skew/users": np.array([7, 9]),
            "skew/norms": np.array([[1.0, 2.0, 3.0, 4.0, 5.0], [3.0, 2.0, 1.0, 0.0, 1.0]]),
            "skew/vectors": np.array([[0.0, 3.0], [0.0, 2.0]]),
            "skew/deviations": np.array([[1.0, 1.0, 3.0, 0.25], [1.0, 1.0, 1.0, 0.5]]),
        },
    }
    (run,) = read_runs([tmp_path / "run"])
    (figure,) = skews([replace(run, rounds=rounds)])
    assert figure.columns == (
        "round", "gradient", "skew", "scaling", "shift", "calibration", "accumulated skew",
    )  # fmt: skip
    assert figure.rows[0] == pytest.approx([1, 1, 2, 3, 4, 5, 1])
    assert figure.rows[1] == pytest.approx([2, 2, 2, 2, 2, 3, (10**0.5 + 2) / 2])
    (limits,) = merging_limits([replace(run, rounds=rounds)])
    assert limits.rows == [[1, pytest.approx(0.25)], [2, pytest.approx(0.375)]]
    assert skews([run]) == merging_limits([run]) == []


def heat_chart(*rows: tuple[float, ...], log: bool = False) -> Chart:
    series = [Series(f"row {number}", row) for number, row in enumerate(rows)]
    return Chart("heat", series, "x", "y", [f"column {n}" for n in range(len(rows[0]))], log_y=log, value="v")


def test_depths_by_hand():
    depth, ends = depths(heat_chart((2.0, 4.0), (3.0, 6.0)))
    assert ends == (2.0, 6.0) and [depth(value) for value in (2, 3, 6)] == [0, 0.25, 1]
    depth, ends = depths(heat_chart((-4.0, 2.0)))
    assert ends == (-4.0, 4.0) and [depth(value) for value in (-4, 0, 2)] == [1, 0, 0.5]
    depth, ends = depths(heat_chart((0.0, 0.01, 1.0), log=True))
    assert ends == (0.01, 1.0) and [depth(value) for value in (0, 0.01, 0.1, 1)] == pytest.approx(
        [0, 0, 0.5, 1]
    )
    depth, _ = depths(heat_chart((3.0, 3.0)))
    assert depth(3.0) == 1


def test_a_map_has_a_cell_for_every_number():
    text = draw(heat_chart((-1.0, 0.5), (0.25, 1.0)), "<map>", alone=True)
    cells = re.findall(r'<path class="c(\d)" fill-opacity="([^"]+)" d="M(\d) (\d)h1v1h-1z"', text)
    assert cells == [
        ("1", "1.00", "0", "0"),
        ("0", "0.50", "1", "0"),
        ("0", "0.25", "0", "1"),
        ("0", "1.00", "1", "1"),
    ]
    assert 'data-columns="column 0|column 1"' in text
    assert re.findall(r'data-y="([^"]+)"', text) == ["-1 0.5", "0.25 1"]
    assert 'aria-label="&lt;map&gt;"' in text and "var(" not in text


def test_pictures_of_maps(two, tmp_path):
    pytest.importorskip("matplotlib")
    from matplotlib.image import imread

    from solera.report.picture import write_figures

    written = write_figures([*merging_weights(two), *mixing_weights(two)], tmp_path / "figures")
    assert {path.name for path in written if path.suffix == ".csv"} == {
        f"{what}-{run}-{number}.csv" for what in ("merging", "mixing") for run in (1, 2) for number in (1, 3)
    }
    pixels = imread(tmp_path / "figures" / "merging-1-3.png")[..., :3]
    deepest = np.array([0x00, 0x72, 0xB2]) / 255  # the colour of 1
    assert (np.abs(pixels - deepest).max(-1) < 0.01).mean() > 1 / 20


def test_runs_without_records_have_no_section(tmp_path):
    write_run(tmp_path / "run")
    runs = read_runs([tmp_path / "run"])
    assert make_figures(runs)["rounds"] == []
    assert 'id="rounds"' not in make_page(runs, make_figures(runs))


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recorded")
    draw_ = random.Random(0)
    lines = ["user,item,time"]
    for user in range(20):
        lines += [f"u{user},i{item},{n}" for n, item in enumerate(draw_.sample(range(40), 8))]
    (folder / "ratings.csv").write_text("\n".join(lines) + "\n")
    solera.train(
        "fedmf",
        str(folder / "ratings.csv"),
        rounds=2,
        out=folder / "run",
        threads=1,
        callbacks=[RecordFigures()],
    )
    return folder / "run"


def test_an_upload_with_the_items_of_its_user(recorded):
    (run,) = read_runs([recorded])
    rows, change = uploads([run])
    arrays = recorded_rounds(recorded)[2]
    client = int(arrays["upload/client"])
    assert client == run.users.middle
    own = {run.users.data.title(int(item)) for item in run.users.train.row(client)}
    sent = {run.users.data.title(int(item)) for item in arrays["upload/rows"]}
    for figure in (rows, change):
        assert {row[1] for row in figure.rows if row[0] == "the user's training items"} == own
        assert {row[1] for row in figure.rows} == sent > own
    assert [figure.name for figure in (rows, change)] == ["upload-1-rows", "upload-1-change"]


def test_the_changes_of_matrix_factorization_tell_the_items_apart(recorded):
    """FedMF moves liked items along the user's vector and others against it: a line parts the two."""
    arrays = recorded_rounds(recorded)[2]
    (run,) = read_runs([recorded])
    own = np.isin(arrays["upload/rows"], run.users.train.row(int(arrays["upload/client"])))
    towards = arrays["upload/items/change"] @ arrays["vectors"][list(arrays["users"]).index(run.users.middle)]
    assert towards[own].min() > towards[~own].max()


def test_without_the_data_no_upload_is_shown(recorded):
    assert list(uploads(read_runs([recorded], use_data=False))) == []
