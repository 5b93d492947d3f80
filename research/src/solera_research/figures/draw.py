"""The papers' figures of recorded trainings, by matplotlib."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from sklearn.manifold import TSNE
from threadpoolctl import threadpool_limits

from solera.core.types import Ints
from solera_research.figures.course import METRICS, Course
from solera_research.figures.recording import Arrays, spread
from solera_research.figures.tables import (
    OWN,
    OWNERS,
    SHARED,
    TAILORED,
    Table,
    information_abundance,
    principal_plane,
    singular_values,
    told_apart,
)

mpl.rcParams["svg.hashsalt"] = "solera"  # the same picture is the same file
mpl.rcParams["svg.fonttype"] = "none"

QUARTERS = ("least active", "second", "third", "most active")
SHOWN = 3  # users whose vectors are followed
MOST = 400  # items drawn beside the user's own
ROWS = 16  # items of a table of numbers
T_SNE_STEPS = 500  # its divergence is then within a hundredth of that after the usual 1000


class Drawn(NamedTuple):
    """A figure and the name of its file."""

    name: str
    figure: Figure


def write(drawn: Iterator[Drawn], folder: Path) -> list[Path]:
    """Write every figure as NAME.svg."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, figure in drawn:
        paths.append(folder / f"{name}.svg")
        figure.savefig(paths[-1], metadata={"Date": None})
    return paths


def draw(courses: Sequence[Course]) -> Iterator[Drawn]:
    """All figures that these trainings have."""
    yield from trajectories(courses)
    yield from by_owner(courses)
    yield from sparsity(courses)
    yield from spectra(courses)
    yield from abundance(courses)
    for number, course in enumerate(courses, start=1):
        yield from weights(course, number)
        yield from uploads(course, number)
        yield from table_numbers(course, number)
        yield from item_maps(course, number)
        yield from abundance_by_user(course, number)


def _axes(title: str, x: str = "", y: str = "") -> tuple[Figure, Axes]:
    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    axes = figure.subplots()
    axes.set(xlabel=x, ylabel=y)
    axes.set_title(title, loc="left", fontsize=11, color="firebrick" if "(LEAKY)" in title else "black")
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _lines(title: str, x: str, y: str, lines: Mapping[str, tuple[Any, Any]], **scales: str) -> Figure:
    figure, axes = _axes(title, x, y)
    for label, (xs, ys) in lines.items():
        axes.plot(xs, ys, label=label)
    axes.set(**scales)
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=8)
    return figure


def _heat(title: str, values: Table, rows: Sequence[str], columns: Sequence[str]) -> Figure:
    """A matrix, the first row on top; zero has no colour."""
    figure, axes = _axes(title)
    most = float(np.abs(values).max()) or 1.0
    signed = bool((values < 0).any())
    image = axes.imshow(
        values, cmap="RdBu_r" if signed else "Blues", vmin=-most if signed else 0, vmax=most, aspect="auto"
    )
    figure.colorbar(image, ax=axes)
    for axis, labels in ((axes.xaxis, columns), (axes.yaxis, rows)):
        places = sorted({0, len(labels) // 2, len(labels) - 1})
        axis.set_ticks(places, [labels[place] for place in places])
    return figure


# Single rounds


def trajectories(courses: Sequence[Course]) -> Iterator[Drawn]:
    """The paths of some users' vectors, in the plane of most variance over all trainings (PFedCLR Fig. 2)."""
    ways = {
        course.title: np.stack([each["vectors"] for each in course.rounds.values()], 1).astype(np.float64)
        for course in courses
        if "vectors" in course.rounds[0]
    }
    users = [course.rounds[0]["users"] for course in courses if course.title in ways]
    if len(ways) < 2 or len({way.shape[2] for way in ways.values()}) > 1:
        return
    common = spread(users[0][np.all([np.isin(users[0], each) for each in users], axis=0)], SHOWN)
    picked = [
        way[[int(np.flatnonzero(known == user)[0]) for user in common]]
        for way, known in zip(ways.values(), users, strict=True)
    ]
    flat = np.concatenate([each.reshape(-1, each.shape[2]) for each in picked])
    if not np.isfinite(flat).all() or not np.ptp(flat, axis=0).any():
        return
    places, share = principal_plane(flat)
    ends = np.cumsum([each.shape[0] * each.shape[1] for each in picked])[:-1]
    planes = [
        part.reshape(*each.shape[:2], 2) for part, each in zip(np.split(places, ends), picked, strict=True)
    ]
    for place, user in enumerate(common):
        lines = {title: tuple(plane[place].T) for title, plane in zip(ways, planes, strict=True)}
        title = f"The way of the vector of user {user}"
        axes = (f"first component (both: {share:.0%} of the variance)", "second component")
        yield Drawn(f"trajectory-{place + 1}", _lines(title, *axes, lines))


def weights(course: Course, number: int) -> Iterator[Drawn]:
    """Merging weights ρ (FedEM Fig. 9) and the aggregation matrix W (FedEM Fig. 8) of the last full round."""
    for kind, what in (("merging", "Merging weights ρ"), ("mixing", "Aggregation matrix W")):
        name = f"{kind}/values"
        known = [(n, each) for n, each in course.rounds.items() if name in each and each[name].size]
        for round_, arrays in known[-1:]:
            rows = [f"user {user}" for user in arrays[f"{kind}/users"]]
            columns = rows
            if kind == "merging":
                columns = [course.parts.data.title(int(item)) for item in arrays["merging/items"]]
            title = f"{what}, {course.title}, round {round_}"
            yield Drawn(f"{kind}-{number}", _heat(title, arrays[name], rows, columns))


def uploads(course: Course, number: int) -> Iterator[Drawn]:
    """The last recorded upload, as the server sees it: the rows and their change (PFedCLR Fig. 8)."""
    for arrays in [each for each in course.rounds.values() if sent_table(each)][-1:]:
        name, client = sent_table(arrays), int(arrays["upload/client"])
        change, before = (arrays[f"{name}/{part}"].astype(np.float64) for part in ("change", "before"))
        sent = arrays["upload/rows"]
        own = np.isin(sent, course.parts.train.row(client))
        for part, values in (("rows", before + change), ("change", change)):
            if _drawable(values):
                title = f"Upload of user {client}: {part}, {course.title}"
                yield Drawn(f"upload-{number}-{part}", _map(title, values, own))


def sent_table(arrays: Arrays) -> str:
    """The table whose rows were sent; empty if there is none to draw."""
    changes = (name for name in arrays if name.startswith("upload/") and name.endswith("/change"))
    wide = (name for name in changes if arrays[name].ndim == 2 and arrays[name].shape[1] > 1)
    return next((name.removesuffix("/change") for name in wide), "")


# Item tables after the last round


def by_owner(courses: Sequence[Course]) -> Iterator[Drawn]:
    """Test figures with one's own item table, the server's and another user's (PFedRec Fig. 3)."""
    found = {course.title: served for course in courses if (served := course.by_owner())}
    for ranking, metric in METRICS.items() if found else ():
        figure, axes = _axes(f"{metric.upper()} by whose item table serves, {ranking}", "", metric.upper())
        for place, (title, served) in enumerate(found.items()):
            means = np.array([served[owner][ranking].mean for owner in OWNERS])
            low, high = (
                np.array([getattr(served[owner][ranking], end) for owner in OWNERS])
                for end in ("low", "high")
            )
            at = np.arange(len(OWNERS)) + (place + 1) / (len(found) + 1) - 0.5
            width = 0.9 / (len(found) + 1)
            axes.bar(at, means, width, yerr=np.clip([means - low, high - means], 0, None), label=title)
        axes.set_xticks(range(len(OWNERS)), OWNERS)
        figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=8)
        yield Drawn(f"owners-{ranking}", figure)


def _shared(course: Course) -> Table | None:
    table = course.tables.get(SHARED)
    return table if table is not None and _drawable(table) else None


def sparsity(courses: Sequence[Course]) -> Iterator[Drawn]:
    """The share of a shared table's entries that are at most so large (FedRAP)."""
    sizes, lines = 10.0 ** np.arange(-6, 0.01, 0.25), {}
    for course in courses:
        if (table := _shared(course)) is not None:
            entries = np.sort(np.abs(table).ravel())
            below = np.searchsorted(entries, sizes * entries[-1], side="right") / len(entries)
            lines[f"{course.title}: {np.mean(entries == 0):.1%} are zero"] = (sizes, below)
    if lines:
        axes = ("size / largest", "share of entries")
        yield Drawn("sparsity", _lines("Sparsity of the shared item table", *axes, lines, xscale="log"))


def spectra(courses: Sequence[Course]) -> Iterator[Drawn]:
    """Singular values of the shared tables, and of those that users are served with (PLGC Fig. 6)."""
    shared = [(course, _shared(course)) for course in courses]
    found = {
        "shared table": {c.title: singular_values(table) for c, table in shared if table is not None},
        "least active users": {c.title: each[0] for c in courses if (each := by_quarter(c.served))},
        "most active users": {c.title: each[-1] for c in courses if (each := by_quarter(c.served))},
    }
    for name, values in found.items():
        lines = {title: (np.arange(1, len(each) + 1), each / each[0]) for title, each in values.items()}
        if lines:
            title, axes = f"Singular values, {name}", ("number", "singular value / largest")
            yield Drawn(f"spectra-{name.replace(' ', '-')}", _lines(title, *axes, lines))


def by_quarter(values: Sequence[Table]) -> list[Table]:
    """Means of singular values over the users of each quarter of activity, the largest value being 1."""
    if len(values) < len(QUARTERS):
        return []
    even = [each / each[0] for each in values][: len(values) // len(QUARTERS) * len(QUARTERS)]
    return [np.mean(some, axis=0) for some in np.split(np.array(even), len(QUARTERS))]


def abundance(courses: Sequence[Course]) -> Iterator[Drawn]:
    """Information abundance of users' tables by quarter of activity (PLGC Fig. 3)."""
    lines = {
        course.title: (QUARTERS, [information_abundance(each) for each in means])
        for course in courses
        if (means := by_quarter(course.served))
    }
    if lines:
        axes = ("users by training items", "information abundance")
        yield Drawn("abundance", _lines("Information abundance of users' item tables", *axes, lines))


def abundance_by_user(course: Course, number: int) -> Iterator[Drawn]:
    """A point for each user and table that the user has to do with (PLGC Fig. 5)."""
    shown = {kind: each for kind, each in course.spectra.items() if kind in told_apart(course.tables)}
    if not shown:
        return
    figure, axes = _axes(f"Information abundance, {course.title}", "training items", "information abundance")
    for kind, (sizes, values) in shown.items():
        axes.scatter(sizes, [information_abundance(each) for each in values], s=12, label=kind)
    axes.set_xscale("log")
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=8)
    yield Drawn(f"abundance-by-user-{number}", figure)


def table_numbers(course: Course, number: int) -> Iterator[Drawn]:
    """Some rows of the shared table and of a user's own, where a method has both (FedRAP Fig. 7)."""
    kinds = [kind for kind in (SHARED, TAILORED, OWN) if kind in course.tables]
    if len(kinds) < 2 or OWN not in kinds or not all(_drawable(course.tables[kind]) for kind in kinds):
        return
    items = spread(np.arange(course.parts.data.n_items), ROWS)
    names = [course.parts.data.title(int(item)) for item in items]
    for place, kind in enumerate(kinds, start=1):
        table = course.tables[kind][items]
        dimensions = [str(each) for each in range(1, table.shape[1] + 1)]
        figure = _heat(f"Numbers, {course.title}: {kind}", table, names, dimensions)
        yield Drawn(f"table-{number}-{place}", figure)


def item_maps(course: Course, number: int) -> Iterator[Drawn]:
    """Item vectors by t-SNE, table by table, with the user's items and vector marked (PFedRec Fig. 2)."""
    own = np.isin(np.arange(course.parts.data.n_items), course.parts.train.row(course.middle))
    known = course.rounds[max(course.rounds)]
    vector = known["vectors"][known["users"] == course.middle] if "vectors" in known else None
    for place, (kind, table) in enumerate(told_apart(course.tables).items(), start=1):
        if _drawable(table):
            fits = vector is not None and vector.shape[1:] == table.shape[1:]
            figure = _map(f"Items, {course.title}: {kind}", table, own, vector if fits else None)
            yield Drawn(f"item-map-{number}-{place}", figure)


def _drawable(vectors: Table) -> bool:
    """Whether they are numbers, and not all the same."""
    return bool(np.isfinite(vectors).all() and np.ptp(vectors, axis=0).any())


def _map(title: str, vectors: Table, own: NDArray[np.bool_], user: Table | None = None) -> Figure:
    """Vectors of items in two dimensions; not all that are not the user's `own` are drawn."""
    mine: Ints = np.flatnonzero(own)
    others = spread(np.flatnonzero(~own), MOST)
    groups = [("other items", others, "#7d8794"), ("the user's training items", mine, "#d55e00")]
    drawn = vectors[np.concatenate([others, mine])]
    places = project(drawn if user is None else np.vstack([drawn, user]))
    figure, axes = _axes(title, "t-SNE 1", "t-SNE 2")
    start = 0
    for label, items, colour in groups:
        x, y = places[start : start + len(items)].T
        axes.scatter(x, y, s=9, alpha=0.6, color=colour, label=label)
        start += len(items)
    if user is not None:
        axes.scatter(
            places[start:, 0], places[start:, 1], s=60, marker="*", color="#009e73", label="the user"
        )
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    return figure


def project(vectors: Table) -> Table:
    """Places [n, 2] by t-SNE; of a handful of vectors, which have hardly any neighbours, in their plane."""
    if len(vectors) < 8:
        return principal_plane(vectors)[0]
    perplexity = min(30.0, (len(vectors) - 1) / 3)
    with threadpool_limits(limits=1):  # thousands of short steps: on busy cores, threads wait for each other
        model = TSNE(perplexity=perplexity, init="pca", random_state=0, max_iter=T_SNE_STEPS)
        places: Table = model.fit_transform(vectors)
    return places
