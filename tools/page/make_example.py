"""Write a folder of invented films for the tests and pictures of the page: bundles, exports and vectors.

python tools/page/make_example.py FOLDER [DATA SET ...]

FOLDER/NAME.bundle      models of every kind that a page reads
FOLDER/page             the page of the first of them
FOLDER/device           a device that has taken part in a federation, for its service
FOLDER/2.bundle         a second version of its model
FOLDER/exports          histories as other services hand them out
FOLDER/vectors.json     what Python computes: scores, reasons, titles, imports

Of every data set that is named, a model of fedslist is added to the bundles and vectors.
"""

from __future__ import annotations

import csv
import io
import json
import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import numpy as np
from example_device import write_device
from example_films import films, watching

from solera.data.datasets import load
from solera.data.interactions import Interactions
from solera.device.bundle import Bundle, Item
from solera.device.catalogue import Catalogue, plain, split_year, titles_in
from solera.device.choices import Choices
from solera.device.device import Device
from solera.device.history import quoted
from solera.device.importers import import_file, read_entries
from solera.device.importers.entry import seconds
from solera.device.importers.source import Source
from solera.device.keys import make_keys
from solera.device.models.opened import open_model
from solera.device.page import write_page
from solera.device.publish import catalogue_of, export
from solera.device.vectors import vectors_of
from solera.methods import find
from solera.runs import RunConfig, train
from solera.runs.blend import blend_runs
from solera.runs.run import Run

_SMALL = {
    "embedding_size": 12,
    "heads": 3,
    "max_length": 30,
    "clients_per_round": 1.0,
    "learning_rate": 0.02,
}


class Recipe(NamedTuple):
    """How a model is trained, and whether all weights of a one-round method are written."""

    method: str
    options: Mapping[str, Any] = MappingProxyType({})
    whole: bool = True
    precision: Literal["single", "double"] = "single"

    @property
    def rounds(self) -> int:
        """One for methods that are solved."""
        return {"fedhist": 20, "fedsasrec": 10}.get(self.method, 1)


MODELS = {
    "fedslist": Recipe("fedslist", whole=False),
    "fedslist-whole": Recipe("fedslist", {"decays": "0,0.6,1"}),
    "fedslist-neighbours": Recipe("fedslist", {"neighbours": 20}),
    "fedease": Recipe("fedease", {"reg": 20.0, "recency": 0.9}, whole=False),
    "fedease-whole": Recipe("fedease", {"reg": 20.0}),
    "fedhist": Recipe("fedhist", {"embedding_size": 7, "decays": "0.5,1"}),
    "fedsasrec": Recipe("fedsasrec", _SMALL),
    "fedsasrec-ligr": Recipe("fedsasrec", _SMALL | {"block": "ligr"}, precision="double"),
    "fedsasrec-hstu": Recipe("fedsasrec", _SMALL | {"block": "hstu", "layers": 3}, precision="double"),
}
BLENDS = {"blend": ("fedslist", "fedsasrec"), "blend-double": ("fedsasrec-hstu", "fedease-whole")}
HISTORIES = 1_000  # random ones for every model
SIMILAR = 10
WATCHED = [  # title, year, date, stars; as the exports have them
    ("The Quiet Between Stars", 2021, "2024-02-03", "4.5"),
    ("Colony Nine Does Not Answer", 1965, "2024-02-10", "4"),
    ("Juno's Orbit", 2003, "2024-02-18", ""),
    ("Moonquake", 1958, "2024-03-01", "3.5"),
    ("The Glass Witness", 1983, "2024-03-09", "5"),
    ("Cold Ink", 1995, "2024-03-15", "4"),
    ("Salt on the Stairs", 1998, "2024-03-22", ""),
    ("Cafe at Platform Four", 1963, "2024-04-02", "2"),
    ("The Robot Gardner", 1979, "2024-04-07", "4"),
    ("A Film Nobody Knows", 2022, "2024-04-11", "3"),
]


def main(arguments: Sequence[str]) -> int:
    """Write everything into a folder."""
    folder, data_sets = Path(arguments[0]), arguments[1:]
    folder.mkdir(parents=True, exist_ok=True)
    vectors: dict[str, Any] = {"titles": title_vectors(), "models": {}, "similar": {}}
    with tempfile.TemporaryDirectory() as scratch:
        publisher = Publisher(folder, Path(scratch))
        bundles = publisher.publish("", watching(), MODELS, BLENDS, films())
        run, key = Path(scratch) / "fedease", Path(scratch) / "publisher.key"
        export(run, folder / "2.bundle", key, items=films(), data=watching(), catalogue_version=2)
        for name in data_sets:
            bundles |= publisher.publish(f"{name}-", load(name), {"fedslist": MODELS["fedslist"]}, {})
    for name, bundle in bundles.items():
        vectors["models"][name] = vectors_of(bundle, HISTORIES)["cases"]
        model = open_model(bundle)
        rows = range(0, model.n_items, model.n_items // 12)
        vectors["similar"][name] = [(row, model.similar(row, SIMILAR)) for row in rows]
    vectors["taste"] = {name: taste_vectors(bundles[name]) for name in (*MODELS, *BLENDS)}
    write_page(bundles["fedslist"], folder / "page", "Invented films")
    write_device(folder / "device", bundles["fedslist"])
    write_exports(folder / "exports")
    vectors["cells"] = [(cell, quoted(cell)) for cell in _cells()]
    vectors["imports"] = import_vectors(folder / "exports", bundles["fedslist"])
    (folder / "vectors.json").write_text(json.dumps(vectors, ensure_ascii=False), encoding="utf-8")
    return 0


class Publisher:
    """Trains models, blends them and writes their bundles."""

    def __init__(self, folder: Path, scratch: Path) -> None:
        self.folder, self.scratch = folder, scratch
        make_keys(scratch / "publisher")

    def publish(
        self,
        prefix: str,
        data: Interactions,
        recipes: Mapping[str, Recipe],
        blends: Mapping[str, tuple[str, str]],
        items: Sequence[Item] | None = None,
    ) -> dict[str, Bundle]:
        """Bundles of models on one data set, by name."""
        runs = {name: self._train(prefix + name, data, recipe) for name, recipe in recipes.items()}
        for name, (first, second) in blends.items():
            runs[name] = blend_runs(runs[first], runs[second], out=self.scratch / (prefix + name))
        whole = {name: recipe.whole for name, recipe in recipes.items()}
        return {
            prefix + name: export(
                self.scratch / (prefix + name),
                self.folder / f"{prefix}{name}.bundle",
                self.scratch / "publisher.key",
                whole=whole.get(name, False),
                items=items or catalogue_of(data),
                data=data,
            )
            for name in runs
        }

    def _train(self, name: str, data: Interactions, recipe: Recipe) -> Run:
        config = RunConfig(
            method=recipe.method,
            dataset=data.name,
            options=find(recipe.method, dict(recipe.options)).config.model_dump(mode="json"),
            rounds=recipe.rounds,
            precision=recipe.precision,
        )
        return train(config, data, out=self.scratch / name, threads=1)


_TITLES = [
    *(
        "The Matrix!",
        "Matrix, The (1999)",
        "Œuvre au noir, L'",
        "L’œuvre au noir",
        "Straße",
        "STRASSE",
        "$ (1971)",
    ),
    *(
        "Smørrebrød & Łódź",
        "ΟΔΥΣΣΕΥΣ",
        "οδυσσεύς",
        "İstanbul ılık",
        "ﬁlm ²",
        "पथेर पांचाली",
        "千と千尋の神隠し",
        "Ⅷ ½",
    ),
    *(
        "Seven (a.k.a. Se7en) (1995)",
        "Hate (Haine, La) (1995)",
        "  spaced   out  ",
        "(500) Days",
        "...",
        "Amélie",
    ),
    *(
        "\u202eevil\u0000 \u200dtitle\t\n",
        "Les Heures du moulin (Hours of the Mill) (1964)",
        "A Winter for Magdalena",
    ),
]


_TIMES = [
    *(
        "",
        " 2024-05-01 ",
        "2024-02-29T20:15",
        "2024-05-01 20:15:30",
        "2024-05-01T20:15:30.5Z",
        "0",
        "881250949",
    ),
    *(
        "2024-05-01T20:15:30+02:00",
        "2024-05-01T20:15-0330",
        "2024-05-01T20:15+01",
        "-5",
        "1704499200.9",
        "1969-12-31",
    ),
]


def _cells() -> list[str]:
    """All texts of up to five characters that matter where a history is written as CSV."""
    letters = "'=-;a", "'=+@\t\r\n\uff1d"
    lengths = (5, 3)
    return [
        "".join(each)
        for text, most in zip(letters, lengths, strict=True)
        for n in range(most + 1)
        for each in product(text, repeat=n)
    ]


def title_vectors() -> dict[str, Any]:
    """Titles as they are compared, and which films they match or are near to."""
    catalogue = Catalogue(films())
    characters = [chr(code) for code in range(0x20, 0x3000) if chr(code).isprintable()]
    asked: list[tuple[str, int | None]] = [
        *((title, split_year(title)[1]) for title in _TITLES),
        *((title, year) for title, year, _, _ in WATCHED),
        *((item.title[2:-7], item.year) for item in films()[::3]),
        *((item.title.swapcase(), None) for item in films()[1::3]),
        *((f"The {item.title[:-9]}", None if item.year is None else item.year + 1) for item in films()[2::3]),
    ]
    draw = np.random.default_rng(0)
    words = ["".join(draw.choice(list("abcd "), size)) for size in draw.integers(2, 9, 80)]
    return {
        "words": words,
        "close": [get_close_matches(word, words, n=3, cutoff=0.6) for word in words],
        "seconds": [[text, seconds(text)] for text in _TIMES],
        "plain": [[title, plain(title), split_year(title), titles_in(title)] for title in _TITLES],
        "characters": [[each, plain(f"a{each}b")] for each in characters],
        "match": [
            [
                title,
                year,
                found.id if (found := catalogue.match(title, year)) else None,
                [item.id for item in catalogue.near(title, year)],
            ]
            for title, year in asked
        ],
    }


LIKED, DISLIKED, OTHERS = ("f3", "f14", "f37", "f61"), "f75", ("f22", "f61", "f48")


def taste_vectors(bundle: Bundle) -> dict[str, Any]:
    """What is recommended after a dislike, and to two people together."""

    def listed(**options: Any) -> list[Any]:
        reasons = 3 if device.model().is_linear else 0
        return [
            (one.item, one.score, one.raised, [[each.item for each in why.reasons] for why in one.of_others])
            for one in device.recommend(20, reasons=reasons, **options)
        ]

    with tempfile.TemporaryDirectory() as scratch:
        device = Device.create(Path(scratch) / "me", bundle)
        for user, items in (("me", LIKED), ("ana", OTHERS)):
            device.add_all([(item, time) for time, item in enumerate(items)], user, "test")
        Choices(device.store, "me").dislike(DISLIKED)
        found = {"alone": listed(), "together": listed(along=["ana"])}
        device.close()
    return {"liked": LIKED, "disliked": DISLIKED, "others": OTHERS} | found


def write_exports(folder: Path) -> None:
    """A Letterboxd zip, and tables of other kinds."""
    folder.mkdir(parents=True, exist_ok=True)
    link = "https://boxd.it/x"
    watched = [(date, name, year, link) for name, year, date, _ in WATCHED]
    ratings = [(date, name, year, link, stars) for name, year, date, stars in WATCHED if stars]
    diary = [
        ("2024-05-02", "Moonquake", 1958, link, "", "Yes", "", "2024-05-01"),
        ("2024-05-03", "", 1958, link, "", "", "", "2024-05-01"),
        ("2024-05-04", "Night Desk", "soon", link, "", "", "", "2024-05-01"),
        ("2024-05-05", 'Two "Left" Feet,\nOne Right', 1982, link, "4", "", "", "2024-05-04"),
    ]
    likes = [("2024-05-06", "Cafe at Platform Four", 1963, link)]
    head = ("Date", "Name", "Year", "Letterboxd URI")
    files = {
        "watched.csv": _csv(head, watched),
        "ratings.csv": _csv((*head, "Rating"), ratings),
        "diary.csv": _csv((*head, "Rating", "Rewatch", "Tags", "Watched Date"), diary),
        "likes/films.csv": _csv(head, likes),
        "watchlist.csv": _csv(head, watched[:1]),
        "profile.csv": "Date Joined,Username\n2020-01-01,someone\n",
        "deleted/diary.csv": _csv(head, watched[:1]),
    }
    with zipfile.ZipFile(folder / "letterboxd.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    (folder / "ratings.csv").write_text("\ufeff" + files["ratings.csv"], encoding="utf-8")
    own = [
        ("f3", "", "", "2024-01-05T20:15", "4", ""),
        ("", "Thimble Town", "1986", "2024-01-06", "2.5", ""),
        ("", "Thimble Town", "1986", "1704499200", "2.5", "yes"),
        ("1984", "", "", "", "", "no"),
        ("", "", "", "", "", ""),
        ("f4", "", "", "someday", "5", ""),
    ]
    (folder / "own.csv").write_text(_csv(("item", "title", "year", "time", "rating", "counts"), own), "utf-8")


def _csv(header: Sequence[object], rows: Sequence[Sequence[object]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([header, *rows])
    return text.getvalue()


_REPORTED = ("entries", "matched", "items", "added", "repeated", "known", "unknown", "left_out", "unused")
_OWN = {name: name for name in ("item", "title", "year", "time", "rating", "counts")}


def import_vectors(folder: Path, bundle: Bundle) -> list[dict[str, Any]]:
    """What Python reads from the exports, what becomes of every row, and what is recommended then."""
    found = []
    for file, format_, options in (
        ("letterboxd.zip", "letterboxd", {}),
        ("ratings.csv", "letterboxd", {}),
        ("own.csv", "csv", _OWN),
    ):
        entries = [
            {
                "title": each.title,
                "year": each.year,
                "time": each.time,
                "item": each.item,
                "liked": each.liked,
            }
            for each in read_entries(format_, Source(folder / file), options)
        ]
        with tempfile.TemporaryDirectory() as scratch:
            device = Device.create(Path(scratch) / "me", bundle)
            report = import_file(device, format_, folder / file, options, "me")
            shown = device.recommend(10, reasons=3)
            device.close()
        found.append(
            {
                "file": file,
                "entries": entries,
                "report": {name: getattr(report, name) for name in _REPORTED},
                "unmatched": [[each.title, [item.id for item in each.near]] for each in report.unmatched],
                "recommended": [[one.item, [reason.item for reason in one.reasons]] for one in shown],
            }
        )
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
