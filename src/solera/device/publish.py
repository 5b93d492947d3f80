"""Bundles, written: of a finished run, of a method to be trained, of a catalogue that has grown.

`read_items` reads a publisher's own file of items.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

from safetensors.torch import save

from solera import __version__
from solera.core.errors import BundleError, DataError, RunError
from solera.core.files import replacing_file
from solera.core.leaf import Params
from solera.core.text import clean_text
from solera.data.datasets import genres, ids_elsewhere, load
from solera.data.interactions import Interactions
from solera.data.table import Table, read_table
from solera.device.bundle import (
    BLEND_FORMAT,
    CATALOGUE,
    COMPACT_FORMAT,
    FORMAT,
    GENRES_FORMAT,
    ID_KINDS,
    IDS_FORMAT,
    LIMITS,
    MANIFEST,
    SECOND,
    SIGNATURE,
    TENSORS,
    Bundle,
    Item,
    Manifest,
    ModelEntry,
    SecondModel,
)
from solera.device.catalogue import natural, split_year
from solera.device.keys import read_secret, sign
from solera.device.model import compacted, method_of
from solera.device.models.opened import open_model
from solera.device.models.served import FROM_HISTORY
from solera.methods import find
from solera.runs.folder import RunFolder
from solera.runs.result import TESTS, RunResult
from solera.runs.run import BLEND, FIRST, read_blend
from solera.runs.run import SECOND as SECOND_RUN

_TOLD = ("format", "dataset", "protocol", "leaky", "seed", "users", "selected_round", *TESTS)  # of a result


def export(
    run: Path,
    output: Path,
    key: Path,
    *,
    catalogue_version: int = 1,
    whole: bool = False,
    items: Sequence[Item] | None = None,
    data: Interactions | None = None,
    data_dir: Path | None = None,
) -> Bundle:
    """Write what a run's clients share, and its catalogue, as a signed bundle: nothing personal.

    Of a one-round method, the largest weights are written in 8 bits each, or with `whole` all as they are.
    `items` gives titles, years and genres instead of the data set.
    """
    catalogue = partial(_catalogue, items=items, data=data, data_dir=data_dir)
    if (run / BLEND).exists():
        return _export_blend(run, output, key, catalogue_version, whole, catalogue)
    folder = RunFolder.open(run)
    model = _published(folder, whole=whole)
    return write(
        model.about,
        catalogue(folder),
        output,
        key,
        catalogue_version=catalogue_version,
        tensors=model.tensors,
        format_=COMPACT_FORMAT if model.compact else FORMAT,
        trained=_told(folder.result),
    )


def _export_blend(  # noqa: PLR0917, those of export
    run: Path,
    output: Path,
    key: Path,
    catalogue_version: int,
    whole: bool,
    catalogue: Callable[[RunFolder], Sequence[Item]],
) -> Bundle:
    """Write both models of a blend."""
    settings, result = read_blend(run)
    folders = [RunFolder.open(run / name) for name in (FIRST, SECOND_RUN)]
    first, second = (_published(folder, whole=whole) for folder in folders)
    tensors = first.tensors | {SECOND + name: value for name, value in second.tensors.items()}
    return write(
        first.about,
        catalogue(folders[0]),
        output,
        key,
        catalogue_version=catalogue_version,
        tensors=tensors,
        format_=BLEND_FORMAT,
        trained=_told(result),
        second=SecondModel(**vars(second.about), weight=settings.weight),
    )


def _told(result: RunResult | None) -> dict[str, Any]:
    assert result is not None  # the folder's state has been read
    return {name: value for name, value in result.document().items() if name in _TOLD}


def _catalogue(
    folder: RunFolder, *, items: Sequence[Item] | None, data: Interactions | None, data_dir: Path | None
) -> Sequence[Item]:
    config, result = folder.config, folder.result
    source = config.dataset if data is None else None
    data = data or load(
        config.dataset,
        data_dir=data_dir,
        min_interactions=config.min_interactions,
        columns=config.columns,
    )
    if result is None or data.n_items != result.items:
        raise RunError(
            f"the data set {config.dataset!r} has changed since the run in {folder.path}",
            f"it had {result.items if result else 'other'} items",
        )
    return catalogue_of(data, source, data_dir) if items is None else _in_order(items, data)


class _Published(NamedTuple):
    """What is published of a run."""

    about: ModelEntry
    tensors: Params
    compact: bool


def _published(folder: RunFolder, *, whole: bool) -> _Published:
    config, state, result = folder.config, folder.state(), folder.result
    assert result is not None  # state() has made sure
    method = find(config.method, config.options, config.plugins)
    if method.tailored:
        raise BundleError(
            f"the server of {method.name!r} keeps a table for every client, so there is no model to publish",
            f"methods whose model is the same for everybody: {', '.join(FROM_HISTORY)}",
        )
    about = ModelEntry(
        method=config.method,
        plugins=config.plugins,
        options=config.options,
        precision=config.precision,
        seed=config.seed,
    )
    tensors = {name: state.shared[name] for name in method.shared_shapes(result.items)}
    if compact := method.one_round and not whole:
        tensors = compacted(method, tensors, result.items)
    return _Published(about, tensors, compact)


def start(
    full_method: str,
    items: Sequence[Item],
    output: Path,
    key: Path,
    *,
    options: Mapping[str, Any] | None = None,
    precision: Literal["single", "double"] = "single",
    seed: int = 0,
) -> Bundle:
    """Write a method that nobody has trained yet, and a catalogue: what a federation begins with."""
    name, *plugins = full_method.split("+")
    method = find(name, dict(options or {}), tuple(plugins))
    taken = method.config.model_dump(mode="json")
    with_plugins = tuple(method.name.split("+")[1:])
    about = ModelEntry(method=name, plugins=with_plugins, options=taken, precision=precision, seed=seed)
    return write(about, items, output, key)


def check_signer(old: Bundle, key: Path) -> None:
    """Refuse a key that did not sign a bundle: devices that have it accept no other."""
    if read_secret(key).public_key().public_bytes_raw() != old.key:
        raise BundleError(
            f"{key} is not the key that signed {old.path}", "use that key: devices accept no other"
        )


def extend(old: Bundle, more: Sequence[Item], output: Path, key: Path) -> Bundle:
    """Write the next version of a catalogue: the old items in their places, then new ones."""
    held = old.catalogue()
    known = {item.id for item in held}
    twice = next((item.id for item in more if item.id in known), None)
    if twice is not None or not more:
        raise BundleError(
            f"item {twice!r} is already in the catalogue" if more else "there are no items to add",
            "give a file with only new items",
        )
    check_signer(old, key)
    manifest = old.manifest
    method_of(old)  # a blend is refused
    version = manifest.catalogue_version + 1
    return write(manifest, [*held, *more], output, key, catalogue_version=version)


def trained_on_devices(
    old: Bundle,
    shared: Params,
    output: Path,
    key: Path,
    trained: dict[str, Any],
    *,
    options: dict[str, Any] | None = None,
) -> Bundle:
    """Write a bundle of the same method and catalogue, with the parameters that a federation has trained.

    `options` of the method are those of the old bundle, if no others are given.
    """
    manifest = old.manifest if options is None else replace(old.manifest, options=options)
    method = find(manifest.method, manifest.options, manifest.plugins)
    if method.tailored:
        raise BundleError(
            f"the server of {method.name!r} keeps a table for every client, so there is no model to publish",
            "leave publisher_key out",
        )
    tensors = {name: shared[name] for name in method.shared_shapes(manifest.items)}
    compact = method.one_round
    if method.one_round:
        tensors = compacted(method, tensors, manifest.items)
    return write(
        manifest,
        old.catalogue(),
        output,
        key,
        catalogue_version=manifest.catalogue_version,
        format_=COMPACT_FORMAT if compact else FORMAT,
        tensors=tensors,
        trained=trained,
    )


def catalogue_of(data: Interactions, source: str | None = None, data_dir: Path | None = None) -> list[Item]:
    """The items of a data set, in its order, with the genres and ids elsewhere that its `source` gives."""
    known = genres(source, data_dir) if source else {}
    elsewhere = ids_elsewhere(source, data, data_dir) if source else {}
    titles = [natural(data.title(item)) for item in range(data.n_items)]
    return [
        Item(id_, title, split_year(title)[1], known.get(id_, ()), elsewhere.get(id_, {}))
        for id_, title in zip(data.item_map.ids.tolist(), titles, strict=True)
    ]


def _in_order(items: Sequence[Item], data: Interactions) -> list[Item]:
    """Items of a publisher's file in the order of a data set; items that nobody has are left out."""
    known = {item.id: item for item in items}
    missing = next((id_ for id_ in data.item_map.ids.tolist() if id_ not in known), None)
    if missing is not None:
        raise BundleError(
            f"the catalogue has no item {missing!r} of the data set",
            "add a line for every item of the data set",
        )
    return [known[id_] for id_ in data.item_map.ids.tolist()]


def write(
    about: ModelEntry,
    items: Sequence[Item],
    output: Path,
    key: Path,
    *,
    catalogue_version: int = 1,
    format_: int = FORMAT,
    tensors: Params | None = None,
    trained: dict[str, Any] | None = None,
    second: SecondModel | None = None,
) -> Bundle:
    """Sign and write a bundle, if a device would take it."""
    with_genres, with_ids = any(item.genres for item in items), any(item.ids for item in items)
    listed = [item if with_ids else item[:4] if with_genres else item[:3] for item in items]
    members = {
        CATALOGUE: json.dumps(listed, ensure_ascii=False).encode(),
        TENSORS: save({name: value.contiguous() for name, value in (tensors or {}).items()}),
    }
    for name, content in members.items():
        if len(content) > LIMITS[name]:
            raise BundleError(
                f"{name} would have {len(content):,} bytes, too many for a bundle",
                "use a method with item vectors",
            )
    manifest = Manifest(
        format=IDS_FORMAT if with_ids else max(format_, GENRES_FORMAT) if with_genres else format_,
        library=__version__,
        **{each.name: getattr(about, each.name) for each in fields(ModelEntry)},
        catalogue_version=catalogue_version,
        items=len(items),
        trained=trained or {},
        second=second,
        sha256={name: hashlib.sha256(content).hexdigest() for name, content in members.items()},
    )
    told = asdict(manifest)
    if second is None:
        del told["second"]
    text = json.dumps(told, indent=2, ensure_ascii=False).encode()
    signature = sign(read_secret(key), text)
    try:
        with replacing_file(output) as partial:
            with zipfile.ZipFile(partial, "w", zipfile.ZIP_STORED) as archive:
                for name, content in {MANIFEST: text, SIGNATURE: signature, **members}.items():
                    archive.writestr(zipfile.ZipInfo(name), content)
            made = Bundle.open(partial)
            made.catalogue()
            open_model(made)  # what no device would take is not published
    except OSError as error:
        raise BundleError(f"{output} cannot be written: {error.strerror}", "give another -o") from None
    return Bundle.open(output)


_NEEDED, _YEAR, _GENRES = ("id", "title"), "year", "genres"


def read_items(path: Path) -> list[Item]:
    """The items in the order of the file; an id given twice or left out is an error with its line.

    Without a column for it, an item's year is the one in parentheses after its title.
    """
    if not path.is_file():
        raise DataError(f"{path} is not a file", "give a CSV file with the columns id,title")
    table = read_table(path, "\t" if path.suffix == ".tsv" else ",", quoted=True)
    wrong = set(table.columns) ^ {*_NEEDED, _YEAR, _GENRES}
    if wrong - {_YEAR, _GENRES, *ID_KINDS}:
        raise DataError(
            f"{path} has the columns {', '.join(table.columns)}",
            "its first line must be id,title; year and genres may follow, with genres as in Comedy|Drama,"
            f" and ids elsewhere: {', '.join(ID_KINDS)}",
        )
    ids = [clean_text(id_).strip() for id_ in table.ids("id").to_list()]
    titles = [clean_text(title).strip() for title in table.columns["title"].to_list()]
    seen: dict[str, int] = {}
    for row, (id_, title) in enumerate(zip(ids, titles, strict=True)):
        if not (id_ and title):
            raise table.fault(row, f"the {'title' if id_ else 'id'} is empty")
        if id_ in seen:
            raise table.fault(row, f"item {id_!r} stands in line {table.lines[seen[id_]]} already")
        seen[id_] = row
    years = _years(table) if _YEAR in table.columns else [split_year(title)[1] for title in titles]
    genres = _genres(table) if _GENRES in table.columns else [()] * len(ids)
    return [Item(*each) for each in zip(ids, titles, years, genres, _elsewhere(table, len(ids)), strict=True)]


def _elsewhere(table: Table, count: int) -> list[dict[str, str]]:
    found: list[dict[str, str]] = [{} for _ in range(count)]
    for kind in (each for each in ID_KINDS if each in table.columns):
        for ids, text in zip(found, table.columns[kind].to_list(), strict=True):
            if id_ := clean_text(text).strip():
                ids[kind] = id_
    return found


def _years(table: Table) -> list[int | None]:
    texts = [text.strip() for text in table.columns[_YEAR].to_list()]
    for row, text in enumerate(texts):
        if text and not (text.isascii() and text.isdigit() and len(text) <= 4):
            raise table.fault(row, f"the year {text!r} is not a year")
    return [int(text) if text else None for text in texts]


def _genres(table: Table) -> list[tuple[str, ...]]:
    fields = (clean_text(text).split("|") for text in table.columns[_GENRES].to_list())
    return [tuple(name.strip() for name in names if name.strip()) for names in fields]
