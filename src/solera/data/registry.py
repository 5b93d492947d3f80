"""Registry of data sets: those used in papers, with source and expected counts, and registered ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from solera.core.errors import DataError
from solera.core.extensions import import_extensions
from solera.data.files import Archive
from solera.data.readers import (
    Genres,
    Ids,
    Rows,
    delimited,
    flagged_genres,
    genres_at,
    movielens_genres,
    movielens_ids,
    movielens_titles,
    read_attributes,
    read_baskets,
    read_listens,
    read_lists,
    read_sequences,
    titles,
)

LEAST = 5  # rows a user needs, so that a leave-last-out split leaves enough to train on


@dataclass(frozen=True)
class Titles:
    """A file with item titles, which may be missing from a folder."""

    file: str
    read: Callable[[Path], dict[str, str]]


@dataclass(frozen=True)
class Attributes:
    """A file with attributes of items, all of them `genres` or not; it may be missing from a folder."""

    file: str
    read: Callable[[Path], Genres]
    genres: bool = False


@dataclass(frozen=True)
class Links:
    """A file with the ids that items have elsewhere; it may be missing from a folder."""

    file: str
    read: Callable[[Path], Ids]


@dataclass(frozen=True)
class Form:
    """One file layout of a data set: its files, how to read them, and what else is known of items.

    A file with an asterisk stands for all that it matches.
    """

    files: tuple[str, ...]
    read: Callable[[list[Path]], Rows | Any]  # or a table in memory with columns user, item, time and title
    titles: Titles | None = None
    one_clock: bool = True  # False: times are ranks within a user, not timestamps
    attributes: Attributes | None = None
    links: Links | None = None
    id_kind: str = ""  # of the items' own ids, if these are used elsewhere


@dataclass(frozen=True)
class Counts:
    """Expected counts of a data set, over users with at least `least` rows."""

    users: int
    items: int
    rows: int
    least: int


@dataclass(frozen=True)
class Licence:
    """The terms a data set is published under, and the page that states them."""

    terms: str
    page: str


@dataclass(frozen=True)
class DataSet:
    """A data set: description, source and expected counts."""

    name: str
    forms: tuple[Form, ...]  # the first one found in a folder is used
    about: str = ""
    page: str = ""
    licence: Licence | None = None
    expected: Counts | None = None
    has_time: bool | None = None
    archive: Archive | None = None  # None: downloaded by hand, because no trusted checksum is known
    min_interactions: int = LEAST
    notes: str = ""
    core: int = 0  # rows that every user and every item has to have in what is left; 0: any
    folder: str = ""  # of the files, if it is another set's; or a path, which is then the only place

    @property
    def home(self) -> str:
        """The name of the folder of its files."""
        return self.folder or self.name


_RATED = ("user", "item", "rating", "time")
_UNTIMED = ("user", "item", "rating")
_LASTFM = Archive(
    "https://files.grouplens.org/datasets/hetrec2011/hetrec2011-lastfm-2k.zip",
    "sha256:6738f48195667ff03caaab4d32ca9a3133d8cc026b7c3cdaf6ce1010e913c59c",
)
_ARTISTS = Titles("artists.dat", titles("\t", header=True))
_HETREC = "https://grouplens.org/datasets/hetrec-2011/"
_GROUPLENS = "https://files.grouplens.org/datasets/"
_GITHUB = "https://github.com/"
_UNSTATED = "no licence stated"
_MOVIELENS = "non-commercial research, no redistribution, no implied endorsement; acknowledge"
_LASTFM_LICENCE = Licence(
    "non-commercial use; cite Last.fm", _GROUPLENS + "hetrec2011/hetrec2011-lastfm-readme.txt"
)

_ML_1M = DataSet(
    name="ml-1m",
    about="MovieLens 1M: film ratings, 2000-03",
    page="https://grouplens.org/datasets/movielens/1m/",
    licence=Licence(_MOVIELENS, _GROUPLENS + "movielens/ml-1m-README.txt"),
    archive=Archive(
        "https://files.grouplens.org/datasets/movielens/ml-1m.zip", "md5:c4d9eecfca2ab87c1945afe126590906"
    ),
    forms=tuple(
        Form(
            (file,),
            delimited("::", _RATED),
            Titles("movies.dat", titles("::", encoding="latin-1")),
            one_clock=file == "ratings.dat",
            attributes=Attributes("movies.dat", genres_at(2, "::", "|", encoding="latin-1"), genres=True),
        )
        for file in ("ratings.dat", "ratings_order.dat")
    ),
    expected=Counts(users=6_040, items=3_706, rows=1_000_209, least=0),
    has_time=True,
    notes="ratings_order.dat has each row's rank by time in the time's place",
)


_S3REC = _GITHUB + "RUCAIBox/CIKM2020-S3Rec"
_REVIEWS = Licence(_UNSTATED + "; cite the papers the page names", "https://jmcauley.ucsd.edu/data/amazon/")


def _sequences(name: str, about: str, file: str, expected: Counts, note: str = "") -> DataSet:
    """A set of S3-Rec, in the publisher's files or in copies with other names."""
    described = file.replace(".txt", "_item2attributes.json"), "item_attributes.json"
    return DataSet(
        name=name,
        about=about,
        page=_S3REC,
        licence=_REVIEWS,
        forms=tuple(
            Form((own,), read_sequences, one_clock=False, attributes=Attributes(more, read_attributes))
            for own, more in zip((file, "sequences.txt"), described, strict=True)
        ),
        expected=expected,
        has_time=True,
        notes=f"data/{file} there; the time is the place in the sequence{note}",
    )


def _movielens(
    name: str, about: str, terms: str, *, archive: Archive | None = None, note: str = ""
) -> DataSet:
    """A set of MovieLens in its present form: CSV files, one of them with ids of IMDb and TMDB."""
    return DataSet(
        name=name,
        about=about,
        page=f"https://grouplens.org/datasets/movielens/{name.removeprefix('ml-')}/",
        licence=Licence(terms, f"{_GROUPLENS}movielens/{name}-README.html"),
        archive=archive,
        forms=(
            Form(
                ("ratings.csv",),
                delimited(","),
                Titles("movies.csv", movielens_titles),
                attributes=Attributes("movies.csv", movielens_genres, genres=True),
                links=Links("links.csv", movielens_ids),
            ),
        ),
        has_time=True,
        notes=note,
    )


_LATEST = "non-commercial, no implied endorsement; passed on under the same terms; acknowledge"
_VIDEO = DataSet(
    name="amazon-video",
    about="Amazon Instant Video: ratings up to 2014",
    page="https://jmcauley.ucsd.edu/data/amazon/",
    licence=Licence(_UNSTATED + "; cite the papers the page names", "https://jmcauley.ucsd.edu/data/amazon/"),
    forms=tuple(
        Form((file,), delimited(",", _RATED)) for file in ("ratings_Amazon_Instant_Video.csv", "ratings.dat")
    ),
    expected=Counts(users=8_072, items=11_830, rows=63_836, least=5),
    has_time=True,
    notes="the ratings-only file of Amazon Instant Video there",
)

_SETS = (
    DataSet(
        name="ml-100k",
        about="MovieLens 100K: film ratings, 1997-98",
        page="https://grouplens.org/datasets/movielens/100k/",
        licence=Licence(_MOVIELENS, _GROUPLENS + "movielens/ml-100k-README.txt"),
        archive=Archive(
            "https://files.grouplens.org/datasets/movielens/ml-100k.zip",
            "md5:0e33842e24a9c977be4e0107933c0723",
        ),
        forms=(
            Form(
                ("u.data",),
                delimited("\t", _RATED),
                Titles("u.item", titles("|", encoding="latin-1")),
                attributes=Attributes("u.item", flagged_genres, genres=True),
            ),
            Form(
                ("ratings.dat",),
                delimited(",", _RATED),
                Titles("items.tsv", titles("\t", header=True, year=2)),
                attributes=Attributes("items.tsv", genres_at(3, "\t", " ", header=True), genres=True),
            ),
        ),
        expected=Counts(users=943, items=1_682, rows=100_000, least=0),
        has_time=True,
    ),
    _ML_1M,
    _movielens(
        "ml-32m",
        "MovieLens 32M: film ratings, 1995-2023",
        _LATEST,
        archive=Archive(_GROUPLENS + "movielens/ml-32m.zip", "md5:d472be332d4daa821edc399621853b57"),
    ),
    _movielens(
        "ml-latest",
        "MovieLens latest: film ratings up to its release",
        _LATEST,
        note="ml-latest.zip there, which changes from time to time",
    ),
    _movielens(
        "ml-latest-small",
        "MovieLens latest, small: 100,000 film ratings",
        _LATEST,
        note="ml-latest-small.zip there, which changes from time to time",
    ),
    DataSet(
        name="listenbrainz",
        about="ListenBrainz: artists that users listened to",
        page="https://listenbrainz.org/data/",
        licence=Licence("CC0 1.0, the public domain", "https://listenbrainz.org/data/"),
        forms=tuple(
            Form((f"{place}listens/*/*.listens",), read_listens, id_kind="musicbrainz")
            for place in ("", "*/")
        ),
        has_time=True,
        notes="a listens dump, unpacked: years or months of it are enough",
    ),
    replace(
        _ML_1M,
        name="ml-1m-5core",
        about="MovieLens 1M, films with at least 5 ratings",
        folder="ml-1m",
        core=5,
        expected=Counts(users=6_040, items=3_416, rows=999_611, least=0),
        notes="the files of ml-1m, in the form that papers on sequential recommendation use",
    ),
    DataSet(
        name="lastfm-2k",
        about="HetRec 2011 Last.fm: tags given to artists",
        page=_HETREC,
        licence=_LASTFM_LICENCE,
        archive=_LASTFM,
        forms=(
            Form(("user_taggedartists-timestamps.dat",), delimited("\t"), _ARTISTS),
            Form(("ratings.dat",), delimited(",", ("user", "item", "tag", "time")), _ARTISTS),
        ),
        expected=Counts(users=1_600, items=12_454, rows=185_650, least=5),
        has_time=True,
        notes="a row is a tag: 70,508 of them are distinct (user, artist) pairs",
    ),
    DataSet(
        name="hetrec2011-lastfm-2k",
        about="HetRec 2011 Last.fm: artists listened to",
        page=_HETREC,
        licence=_LASTFM_LICENCE,
        archive=_LASTFM,
        forms=(Form(("user_artists.dat",), delimited("\t"), _ARTISTS),),
        expected=Counts(users=1_874, items=17_612, rows=92_780, least=10),
        has_time=False,
        min_interactions=10,
    ),
    DataSet(
        name="hetrec2011-movielens",
        about="HetRec 2011 MovieLens: film ratings of 2,113 users",
        page=_HETREC,
        licence=Licence(
            "non-commercial use; cite MovieLens, IMDb and Rotten Tomatoes",
            _GROUPLENS + "hetrec2011/hetrec2011-movielens-readme.txt",
        ),
        forms=(
            Form(
                ("user_ratedmovies-timestamps.dat",),
                delimited("\t"),
                Titles("movies.dat", titles("\t", encoding="latin-1", header=True, year=5)),
            ),
        ),
        expected=Counts(users=2_113, items=10_109, rows=855_598, least=0),
        has_time=True,
        notes="hetrec2011-movielens-2k-v2.zip there",
    ),
    DataSet(
        name="filmtrust",
        about="FilmTrust: film ratings, 2011",
        page="https://guoguibing.github.io/librec/datasets.html",
        licence=Licence(
            _UNSTATED + "; please cite Guo et al. (2013)", "https://guoguibing.github.io/librec/datasets.html"
        ),
        forms=(Form(("ratings.txt",), delimited(" ", _UNTIMED)),),
        expected=Counts(users=1_002, items=2_042, rows=33_372, least=10),
        has_time=False,
        min_interactions=10,
        notes="filmtrust.zip there; 3 pairs are rated twice",
    ),
    _VIDEO,
    replace(
        _VIDEO,
        name="amazon-video-10",
        about="Amazon Instant Video, users with at least 10 ratings",
        folder="amazon-video",
        min_interactions=10,
        expected=Counts(users=1_372, items=7_957, rows=23_181, least=10),
        notes="the file of amazon-video; the part that FedRAP's paper uses",
    ),
    DataSet(
        name="douban-book",
        about="Douban: book ratings, the part GA-DTCDR uses",
        page=_GITHUB + "fengzhu1/GA-DTCDR",
        licence=Licence(
            "GPL-3.0 for the whole repository; cite its papers",
            _GITHUB + "fengzhu1/GA-DTCDR",
        ),
        forms=(Form(("ratings.dat",), delimited("\t", _UNTIMED)),),
        expected=Counts(users=1_696, items=6_777, rows=95_107, least=5),
        has_time=False,
        notes="its folder Data, douban_book/ratings.dat",
    ),
    DataSet(
        name="tafeng",
        about="Ta-Feng: baskets of a grocery, 2000-01",
        page=_GITHUB + "liming-7/A-Next-Basket-Recommendation-Reality-Check",
        licence=Licence(_UNSTATED, _GITHUB + "liming-7/A-Next-Basket-Recommendation-Reality-Check"),
        forms=(Form(("tafeng_merged.json",), read_baskets, one_clock=False),),
        expected=Counts(users=13_858, items=11_997, rows=571_933, least=0),
        has_time=True,
        notes="its folder mergeddataset; the time is the basket's number; buying again is a row again",
    ),
    DataSet(
        name="gowalla",
        about="Gowalla: check-ins at places",
        page=_GITHUB + "geon0325/LightGCNpp",
        licence=Licence(_UNSTATED, _GITHUB + "geon0325/LightGCNpp"),
        forms=(
            Form(("train.txt", "valid.txt", "test.txt"), read_lists),
            Form(("train.txt", "test.txt"), read_lists),
        ),
        expected=Counts(users=29_858, items=40_981, rows=1_027_370, least=0),
        has_time=False,
        notes="its folder data/gowalla",
    ),
    DataSet(
        name="pinterest",
        about="Pinterest: images pinned",
        page=_GITHUB + "kangkang-yun/HMGCN",
        licence=Licence(_UNSTATED, _GITHUB + "kangkang-yun/HMGCN"),
        forms=(Form(("train.txt", "test.txt"), read_lists),),
        expected=Counts(users=37_501, items=9_836, rows=1_025_709, least=0),
        has_time=False,
        notes="its folder data/pinterest; 25,555 rows repeat a pair: 1,000,154 are distinct",
    ),
    DataSet(
        name="amazon-book",
        about="Amazon Books: the part KGAT uses",
        page=_GITHUB + "xiangwang1223/knowledge_graph_attention_network",
        licence=Licence(
            "non-commercial research, no redistribution, no deanonymization; cite KGAT",
            _GITHUB + "xiangwang1223/knowledge_graph_attention_network/blob/master/Data/README.md",
        ),
        forms=(Form(("train.txt", "test.txt"), read_lists),),
        expected=Counts(users=70_679, items=24_915, rows=846_434, least=0),
        has_time=False,
        notes="its folder Data/amazon-book",
    ),
    _sequences(
        "beauty",
        "Amazon Beauty: reviews up to 2014, 5-core",
        "Beauty.txt",
        Counts(users=22_363, items=12_101, rows=198_502, least=0),
    ),
    _sequences(
        "sports",
        "Amazon Sports and Outdoors: reviews up to 2014, 5-core",
        "Sports_and_Outdoors.txt",
        Counts(users=35_598, items=18_357, rows=296_337, least=0),
    ),
    _sequences(
        "toys",
        "Amazon Toys and Games: reviews up to 2014, 5-core",
        "Toys_and_Games.txt",
        Counts(users=19_412, items=11_924, rows=167_597, least=0),
    ),
    replace(
        _sequences(
            "yelp",
            "Yelp: reviews of businesses, 2019, 5-core",
            "Yelp.txt",
            Counts(users=30_431, items=20_033, rows=316_354, least=0),
            "; 11,830 rows repeat a pair",
        ),
        licence=Licence(
            "academic and personal use under Yelp's dataset terms, no redistribution",
            "https://www.yelp.com/dataset",
        ),
    ),
)
REGISTRY = {entry.name: entry for entry in _SETS}
_BUILT_IN = frozenset(REGISTRY)


def register_dataset(entry: DataSet) -> None:
    """Register your own data set. Registering the name again replaces it."""
    if entry.name in _BUILT_IN or "@" in entry.name:
        taken = "is one of Solera's own data sets" if entry.name in _BUILT_IN else "has an @, as parts do"
        raise DataError(f"{entry.name!r} {taken}", "register yours under another name")
    REGISTRY[entry.name] = entry


def known_datasets() -> dict[str, DataSet]:
    """All data sets by name, Solera's own first."""
    import_extensions("datasets")
    return REGISTRY


def is_registered(entry: DataSet) -> bool:
    """Whether it comes from outside. Its reader may change, so that no converted copy of it is kept."""
    return entry.name not in _BUILT_IN
