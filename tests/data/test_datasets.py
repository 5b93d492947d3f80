"""The registry: the papers' tables, the publishers' own forms, names and own files."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from solera.core.errors import DataError
from solera.data.datasets import available, info, load, names, stats
from solera.data.interactions import Interactions
from solera.data.registry import DataSet, Form, register_dataset

FOLDER = os.environ.get("SOLERA_DATA")
U_DATA = "".join(f"1\t{item}\t3\t{880_000_000 - item}\n" for item in range(1, 7)) + "2\t1\t5\t881250949\n"
U_ITEM = "1|Toy Story (1995)|01-Jan-1995||http://x|0|1\n2|Misérables, Les (1995)|||x|0|1\n"


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty cache and no folder of the user's."""
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda _: tmp_path / "cache")
    monkeypatch.delenv("SOLERA_DATA", raising=False)


def folder(tmp_path: Path, name: str, files: dict[str, str | bytes]) -> Path:
    home = tmp_path / "mine" / name
    home.mkdir(parents=True)
    for file, text in files.items():
        (home / file).write_bytes(text.encode() if isinstance(text, str) else text)
    return home.parent


# --- the papers' tables -------------------------------------------------------------------------


def local(name: str, least: int | None = None) -> Interactions:
    if not FOLDER:
        pytest.skip("SOLERA_DATA names no folder of data sets")
    if available(name, Path(FOLDER)) != "folder":
        pytest.skip(f"{name} is not in the folder SOLERA_DATA names")
    return load(name, data_dir=Path(FOLDER), min_interactions=least)


def large(name: str) -> list[pytest.MarkDecorator]:
    """Reading them takes a second each."""
    return [pytest.mark.slow] if info(name).expected.rows > 250_000 else []


COUNTED = [name for name in names() if info(name).expected]  # others change, or have never been here


@pytest.mark.parametrize("name", [pytest.param(name, marks=large(name)) for name in COUNTED])
def test_the_whole_set_has_the_expected_counts(name: str) -> None:
    expected = info(name).expected
    data = local(name, expected.least)
    assert (data.n_users, data.n_items, len(data)) == (expected.users, expected.items, expected.rows)
    assert (data.times is not None) == info(name).has_time


COUNTS = [  # users, items, rows, distinct pairs
    # by default, the number of interactions the papers ask of a user
    ("ml-100k", None, (943, 1_682, 100_000, 100_000)),
    ("ml-1m", None, (6_040, 3_706, 1_000_209, 1_000_209)),
    ("lastfm-2k", None, (1_600, 12_454, 185_650, 70_508)),
    ("hetrec2011-lastfm-2k", None, (1_874, 17_612, 92_780, 92_780)),
    ("filmtrust", None, (1_002, 2_042, 33_372, 33_369)),
    ("amazon-video", None, (8_072, 11_830, 63_836, 63_836)),
    ("amazon-video", 10, (1_372, 7_957, 23_181, 23_181)),
    ("douban-book", None, (1_696, 6_777, 95_107, 95_107)),  # PLGC: no item is lost with the users
    ("gowalla", None, (29_858, 40_981, 1_027_370, 1_027_370)),
    ("ml-1m-5core", None, (6_040, 3_416, 999_611, 999_611)),
    ("beauty", None, (22_363, 12_101, 198_502, 198_502)),  # S3-Rec, SASRec's successors
    ("sports", None, (35_598, 18_357, 296_337, 296_337)),
    ("toys", None, (19_412, 11_924, 167_597, 167_597)),
    # measured: no paper's table says these
    ("lastfm-2k", 10, (1_269, 12_322, 183_415, 69_279)),  # the papers' 1,600 users are those of 5 rows
    ("filmtrust", 0, (1_508, 2_071, 35_497, 35_494)),
    ("hetrec2011-lastfm-2k", 0, (1_892, 17_632, 92_834, 92_834)),
    ("douban-book", 0, (2_110, 6_777, 96_041, 96_041)),
    ("tafeng", None, (13_652, 11_997, 571_198, 503_767)),
    ("pinterest", None, (37_501, 9_836, 1_025_709, 1_000_154)),  # the usual count is of distinct pairs
    ("yelp", None, (30_431, 20_033, 316_354, 304_524)),  # 11,830 visits again
    ("amazon-book", None, (70_595, 24_915, 846_098, 846_098)),  # 84 users have 4 rows
]


@pytest.mark.parametrize(
    ("name", "least", "counts"), [pytest.param(*each, marks=large(each[0])) for each in COUNTS]
)
def test_counts_under_a_filter(name: str, least: int | None, counts: tuple[int, ...]) -> None:
    found = stats(local(name, least))
    assert tuple(found[key] for key in ("users", "items", "rows", "distinct_pairs")) == counts


def test_local_titles_and_times() -> None:
    small = local("ml-100k")
    assert small.title(0) == "Toy Story (1995)"
    assert stats(small)["first_time"] == "1997-09-20T03:05:10+00:00"
    large = local("ml-1m")
    assert large.title(0) == "Toy Story (1995)"
    assert stats(large)["first_time"] is None  # ranks are no dates
    assert stats(local("lastfm-2k"))["last_time"] == "2011-05-08T22:00:00+00:00"


# --- the publishers' own forms ------------------------------------------------------------------


def test_ml_100k_as_published(tmp_path: Path) -> None:
    home = folder(tmp_path, "ml-100k", {"u.data": U_DATA, "u.item": U_ITEM.encode("latin-1")})
    data = load("ml-100k", data_dir=home, min_interactions=0)
    assert (data.n_users, data.n_items, len(data)) == (2, 6, 7)
    assert [data.title(i) for i in (0, 1, 2)] == ["Toy Story (1995)", "Misérables, Les (1995)", "3"]
    assert data.by_user.row(0).tolist() == [5, 4, 3, 2, 1, 0]  # oldest first
    assert load("ml-100k", data_dir=home).n_users == 1  # by default a user has 5 rows


def test_ml_1m_as_published(tmp_path: Path) -> None:
    ratings = "1::1193::5::978300760\n1::661::3::978302109\n2::1193::4::978298413\n"
    movies = "661::James (1996)::Animation|Children's\n1193::Café (1975)::Drama\n".encode("latin-1")
    home = folder(tmp_path, "ml-1m", {"ratings.dat": ratings, "movies.dat": movies})
    data = load("ml-1m", data_dir=home, min_interactions=1)
    assert data.titles == ("James (1996)", "Café (1975)")
    assert data.by_user.row(0).tolist() == [1, 0]


def test_hetrec_as_published(tmp_path: Path) -> None:
    rated = "userID\tmovieID\trating\ttimestamp\r\n75\t3\t1\t1162160236000\r\n75\t32\t4.5\t1162160624000\r\n"
    movies = "id\ttitle\timdbID\tspanishTitle\tpicture\tyear\r\n3\tGrumpy ñ\t1\tx\thttp://x\t1993\r\n"
    home = folder(
        tmp_path,
        "hetrec2011-movielens",
        {"user_ratedmovies-timestamps.dat": rated, "movies.dat": movies.encode("latin-1")},
    )
    data = load("hetrec2011-movielens", data_dir=home, min_interactions=0)
    assert [data.title(i) for i in range(2)] == ["Grumpy ñ (1993)", "32"]
    assert stats(data)["first_time"] == "2006-10-29T22:17:16+00:00"


def test_lastfm_as_published(tmp_path: Path) -> None:
    tags = "userID\tartistID\ttagID\ttimestamp\n2\t52\t13\t1238536800000\n2\t52\t15\t1238536800000\n"
    artists = "id\tname\turl\tpictureURL\n52\tMorcheeba\thttp://x\n"
    home = folder(tmp_path, "lastfm-2k", {"user_taggedartists-timestamps.dat": tags, "artists.dat": artists})
    data = load("lastfm-2k", data_dir=home, min_interactions=0)
    assert (len(data), data.title(0)) == (2, "Morcheeba")


def test_gowalla_without_a_validation_file(tmp_path: Path) -> None:
    home = folder(tmp_path, "gowalla", {"train.txt": "0 5 4\n", "test.txt": "0 3\n"})
    data = load("gowalla", data_dir=home, min_interactions=0)
    assert [data.item_map.id(i) for i in data.by_user.row(0)] == ["5", "4", "3"]


@pytest.mark.parametrize("file", ["Beauty.txt", "sequences.txt"])
def test_sequences_are_in_order_of_time(tmp_path: Path, file: str) -> None:
    home = folder(tmp_path, "beauty", {file: "2 7 5 7 9\n1 5 9 7\n"})
    data = load("beauty", data_dir=home, min_interactions=0)
    assert [data.item_map.id(i) for i in data.by_user.row(1)] == ["7", "5", "7", "9"]
    assert [data.item_map.id(i) for i in data.by_user.row(0)] == ["5", "9", "7"]
    assert data.times is not None
    assert not data.one_clock, "places in a line are no dates"
    assert load("beauty", data_dir=home, min_interactions=4).n_users == 1


def test_a_core_has_items_with_enough_rows(tmp_path: Path) -> None:
    """Film 9 has four ratings. Without it user 6 has four as well; all others keep five."""
    rows = [(user, film) for user in range(1, 7) for film in range(1, 6)]
    rows += [(user, 9) for user in (1, 2, 3, 6)]
    rows.remove((6, 5))
    ratings = "".join(f"{user}::{film}::3::{n}\n" for n, (user, film) in enumerate(rows))
    home = folder(tmp_path, "ml-1m", {"ratings.dat": ratings})
    core = load("ml-1m-5core", data_dir=home)
    assert (core.n_users, core.n_items, len(core), core.name) == (5, 5, 25, "ml-1m-5core")
    assert load("ml-1m", data_dir=home).n_items == 6
    assert available("ml-1m-5core", home) == "folder"


# --- names, own files, figures ------------------------------------------------------------------


def test_an_unknown_name_and_a_missing_path(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="unknown data set 'ml-100'") as caught:
        load("ml-100")
    assert caught.value.exit_code == 2
    assert "did you mean 'ml-100k'?" in caught.value.hint
    for path in ("my.csv", "data/ml", str(tmp_path / "x.parquet")):
        with pytest.raises(DataError, match="does not exist"):
            load(path)
    with pytest.raises(DataError, match="is a folder"):
        load(tmp_path)


def test_an_own_file_is_named_after_itself(tmp_path: Path) -> None:
    path = tmp_path / "shop.csv"
    path.write_text("who,item\n" + "".join(f"a,{i}\n" for i in range(5)) + "b,1\n", encoding="utf-8")
    data = load(path, columns={"user": "who"})
    assert (data.name, data.n_users, data.times) == ("shop", 1, None)  # b has fewer than 5 rows
    assert load(str(path), columns={"user": "who"}, min_interactions=0).n_users == 2
    with pytest.raises(DataError, match=r"columns of .* are already known"):
        load("ml-100k", columns={"user": "who"})


def test_stats_are_plain_json() -> None:
    times = np.array([978_300_760, 978_300_761, 0, 978_300_760], dtype=np.int64)
    data = Interactions.from_columns("t", ["1", "1", "1", "2"], ["a", "a", "b", "b"], times)
    assert json.loads(json.dumps(stats(data))) == {
        "rows": 4,
        "distinct_pairs": 3,
        "users": 2,
        "items": 2,
        "density": 0.75,
        "rows_per_user": {"min": 1, "median": 2.0, "mean": 2.0, "max": 3},
        "has_time": True,
        "first_time": "1970-01-01T00:00:00+00:00",
        "last_time": "2000-12-31T22:12:41+00:00",
    }


@pytest.mark.parametrize("name", names())
def test_every_entry_is_complete(name: str) -> None:
    entry = info(name)
    assert entry.name == name
    assert entry.about
    assert entry.page.startswith("https://")
    assert entry.licence
    assert entry.licence.page.startswith("https://")
    assert 10 < len(entry.licence.terms) <= 90
    assert entry.min_interactions >= 5
    if entry.archive:
        assert entry.archive.url.startswith("https://")
        kind, _, digest = entry.archive.checksum.partition(":")
        assert len(digest) == {"md5": 32, "sha256": 64}[kind]


@pytest.fixture
def club(tmp_path: Path, nothing_of_ones_own: None) -> DataSet:
    """A data set of one's own: two users in one file, which a function of one's own reads."""

    def read(files: list[Path]) -> pl.DataFrame:
        words = [line.split() for line in files[0].read_text(encoding="utf-8").splitlines()]
        return pl.DataFrame({"user": [user for user, _ in words], "item": [item for _, item in words]})

    text = "".join(f"a {item}\n" for item in range(6)) + "b 1\nb 2\n"
    (tmp_path / "plays.txt").write_text(text, encoding="utf-8")
    entry = DataSet(name="club", forms=(Form(("plays.txt",), read),), folder=str(tmp_path))
    register_dataset(entry)
    return entry


def test_a_data_set_of_ones_own_is_loaded_by_name(club: DataSet, tmp_path: Path) -> None:
    assert "club" in names()
    assert available("club") == "folder"
    data = load("club")
    assert (data.name, data.n_users, data.n_items) == ("club", 1, 6)  # b has fewer than 5 rows
    assert load("club", min_interactions=0).n_users == 2
    assert len(load("club@users=2-2", min_interactions=0)) == 2
    register_dataset(replace(club, min_interactions=2))
    assert load("club").n_users == 2
    (tmp_path / "plays.txt").unlink()
    assert available("club") == "by hand"
    with pytest.raises(DataError) as caught:
        load("club")
    assert caught.value.hint == f"get plays.txt; put into {tmp_path}/"


@pytest.mark.parametrize("name", ["ml-100k", "club@users=1-1"])
def test_names_that_a_data_set_of_ones_own_cannot_have(club: DataSet, name: str) -> None:
    with pytest.raises(DataError, match="register yours under another name"):
        register_dataset(replace(club, name=name))
