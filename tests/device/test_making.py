"""Bundles of data sets as they are published today, and histories of today against them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from made_movielens import FILMS, USERS, write_letterboxd, write_movielens

from in_process import solera
from solera.core.errors import DataError
from solera.data.datasets import load
from solera.device.bundle import Bundle
from solera.device.catalogue import natural
from solera.device.device import Device
from solera.device.importers import import_file
from solera.device.making import make


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A folder of data sets with MovieLens latest in it."""
    root = tmp_path_factory.mktemp("sets")
    write_movielens(root / "ml-latest")
    return root


@pytest.fixture(scope="module")
def made(folder, keys) -> tuple[Bundle, Path]:
    return make("ml-latest", folder / "films.bundle", Path(f"{keys}.key"), data_dir=folder)


@pytest.fixture
def me(made, tmp_path):
    device = Device.create(tmp_path / "me", made[0])
    yield device
    device.close()


def test_a_bundle_of_movielens_has_natural_titles_genres_and_ids(made):
    items = {item.title: item for item in made[0].catalogue()}
    rock = items["The Rock (1996)"]
    assert rock.year == 1996
    assert rock.ids["imdb"].startswith("tt01000")
    assert items["The Postman (Il Postino) (1994)"].genres
    assert sum("tmdb" in item.ids for item in items.values()) / len(items) == pytest.approx(0.95, abs=0.02)
    assert not any("no genres" in genre for item in items.values() for genre in item.genres)


def test_its_card_says_what_a_publisher_has_to_say(made):
    bundle, card = made
    text = card.read_text()
    size = f"{bundle.path.stat().st_size:,} bytes"
    told = ("MovieLens latest", f"{USERS} users", "non-commercial", "ε = ∞", size, "HR@10", "tmdb of 9")
    for said in (*told, "order of a history does not count"):
        assert said in text, said


def test_a_letterboxd_export_of_today_is_matched(me, tmp_path):
    report = import_file(me, "letterboxd", write_letterboxd(tmp_path / "a.zip"), {}, "me")
    missed = [each.title for each in report.unmatched]
    assert len(FILMS) == 60
    assert len(missed) <= 0.05 * len(FILMS), missed
    assert me.find("Parasite (2019)").year == 2019, "not its namesake of 1982"
    control = {title for title in ("Stalkers", "Heat 2", "Inside Out (2024)") if me.catalogue.match(title)}
    assert not control


def test_the_order_of_logging_does_not_change_what_is_recommended(me, made, keys, folder, tmp_path):
    """A Letterboxd export has the dates of logging. A bundle that reads the order follows its last film."""

    def best(device: Device, order: int) -> list[str]:
        films = [device.find(f"{f.name} ({f.year})").id for f in FILMS[6:18]][::order]
        device.add_all(((film, day, True) for day, film in enumerate(films)), f"in {order}", "test")
        return [one.item for one in device.recommend(5, user=f"in {order}")]

    assert best(me, 1) == best(me, -1)
    ordered, _ = make(
        "ml-latest", tmp_path / "b.bundle", Path(f"{keys}.key"), method="fedslist", data_dir=folder
    )
    other = Device.create(tmp_path / "other", ordered)
    assert best(other, 1) != best(other, -1), "the control"
    other.close()


def test_one_command_makes_it(folder, keys, tmp_path):
    bundle = tmp_path / "b.bundle"
    done = solera("bundle", "make", "ml-latest", "-o", bundle, "--key", f"{keys}.key", "--data-dir", folder,
                  "--items", 40, "--json")  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["items"] == len(Bundle.open(bundle).catalogue()) == 40
    assert Path(said["card"]).read_text().startswith("# b.bundle")


LISTENS = [  # who, when, which artists, and their name
    ("7", 10, ["a"], "Ann"),
    ("7", 5, ["a"], "Ann"),
    ("7", 20, ["b", "a"], "Bob & Ann"),
    ("8", 30, ["b"], "Bob"),
    ("8", 31, ["b"], "Bob"),
    ("8", 40, [], "Nobody"),
    ("9", 50, None, "No info"),
    ("9", 60, ["a"], "Ann"),
]  # fmt: skip


def listen(user: str, time: int, artists: list[str] | None, name: str, stamp: str = "timestamp") -> str:
    info = {} if artists is None else {"artist_mbids": artists, "tags": ["x"]}
    track = {"artist_name": name, "track_name": "T", "additional_info": info}
    return json.dumps({"user_id": int(user), "user_name": f"u{user}", stamp: time, "track_metadata": track})


@pytest.fixture
def dump(tmp_path) -> Path:
    """Two months of a dump of ListenBrainz, as it is unpacked."""
    folder = tmp_path / "listenbrainz" / "listenbrainz-listens-dump-9-20240101-000003-full" / "listens"
    for month, part in (("2023/11", LISTENS[:4]), ("2024/1", LISTENS[4:])):
        file = folder / f"{month}.listens"
        file.parent.mkdir(parents=True)
        stamp = "timestamp" if month == "2024/1" else "listened_at"
        file.write_text("".join(f"{listen(*each, stamp=stamp)}\n" for each in part))
    return tmp_path


def test_a_dump_of_listenbrainz_is_read(dump, keys):
    data = load("listenbrainz", data_dir=dump, min_interactions=0)
    assert data.times is not None
    users, items = data.user_map.ids, data.item_map.ids
    rows = {(users[u], items[i], t) for u, i, t in zip(data.users, data.items, data.times, strict=True)}
    assert rows == {("7", "a", 5), ("7", "b", 20), ("8", "b", 30), ("9", "a", 60)}
    assert [data.title(item) for item in range(2)] == ["Ann", "Bob"]


def test_a_damaged_dump_is_refused(dump):
    file = next(dump.rglob("1.listens"))
    file.write_text(file.read_text() + "{not json\n")
    with pytest.raises(DataError, match="a listen that cannot be read"):
        load("listenbrainz", data_dir=dump, min_interactions=0)


def test_a_bundle_of_listenbrainz_has_ids_of_musicbrainz(tmp_path, keys):
    folder = tmp_path / "listenbrainz" / "listens" / "2024"
    folder.mkdir(parents=True)
    lines = [
        listen(str(u), 100 * u + a, [f"mb{a}"], f"Artist {a}")
        for u in range(40)
        for a in range(12)
        if (u + a) % 4
    ]
    (folder / "1.listens").write_text("\n".join(lines))
    bundle, card = make("listenbrainz", tmp_path / "a.bundle", Path(f"{keys}.key"), data_dir=tmp_path)
    assert {item.title: dict(item.ids) for item in bundle.catalogue()}["Artist 3"] == {"musicbrainz": "mb3"}
    assert "CC0" in card.read_text()


@pytest.mark.parametrize(("title", "said"), [
    ("Rock, The (1996)", "The Rock (1996)"),
    ("Avventura, L' (Adventure, The) (1960)", "L'Avventura (The Adventure) (1960)"),
    ("Three Billboards Outside Ebbing, Missouri (2017)",) * 2,
    ("Seven (a.k.a. Se7en) (1995)",) * 2,
])  # fmt: skip
def test_natural_titles(title, said):
    assert natural(title) == said
