"""A bundle: a trained model and its catalogue in one signed file, for devices to recommend with.

A zip whose members are stored as they are, not compressed, so that nothing grows when it is opened:

manifest.json        method, options, versions, and the SHA-256 of the other members
manifest.sig         the publisher's public key (32 bytes) and its Ed25519 signature of the manifest (64)
catalogue.json       [id, title, year or null] of every item, in the order of the tensors' rows; in format 3
                     [id, title, year or null, [genre, …]], in format 5 {kind: id elsewhere} after that
shared.safetensors   the shared parameters, nothing personal

docs/reference/bundle-format.md describes every field. Nothing of a file is looked at before the signature
over it has been checked.
"""

from __future__ import annotations

import hashlib
import json
import struct
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from reprlib import repr as shortened
from typing import Any, Literal, NamedTuple, TypeVar, get_args

from solera.core.errors import BundleError
from solera.core.text import clean_text

FORMAT = 1
COMPACT_FORMAT = 2  # the same with compact weights of a one-round method (`device.model`)
GENRES_FORMAT = 3  # the same with genres in the catalogue, and weights of either form
BLEND_FORMAT = 4  # two models that score together; names of the second one's tensors begin with `SECOND`
IDS_FORMAT = 5  # the same with ids elsewhere in the catalogue, and one model or two
IdKind = Literal["tmdb", "imdb", "tvdb", "musicbrainz", "isbn"]  # of an item elsewhere
ID_KINDS: tuple[str, ...] = get_args(IdKind)
SECOND = "second/"
MANIFEST, SIGNATURE, CATALOGUE, TENSORS = (
    "manifest.json",
    "manifest.sig",
    "catalogue.json",
    "shared.safetensors",
)
KEY_BYTES, SIGNATURE_BYTES = 32, 64
LIMITS = {  # bytes
    MANIFEST: 1 << 20,
    SIGNATURE: KEY_BYTES + SIGNATURE_BYTES,
    CATALOGUE: 1 << 28,
    TENSORS: 6 << 30,
}
_AGAIN = "get the file again from its publisher"
T = TypeVar("T")


class Item(NamedTuple):
    """One item of a catalogue."""

    id: str
    title: str
    year: int | None
    genres: tuple[str, ...] = ()
    ids: Mapping[str, str] = {}  # of the same item elsewhere, by kind


@dataclass(frozen=True, kw_only=True)
class ModelEntry:
    """What a manifest says of a model."""

    method: str
    plugins: tuple[str, ...]
    options: dict[str, Any]
    precision: Literal["single", "double"]
    seed: int = 0  # of how parameters start, and of what clients draw

    @property
    def full_method(self) -> str:
        """The method's name with its plug-ins."""
        return "+".join([self.method, *self.plugins])


@dataclass(frozen=True, kw_only=True)
class SecondModel(ModelEntry):
    """The second model of a blend (`runs.blend`)."""

    weight: float  # of its standardised scores; the first has the rest


@dataclass(frozen=True, kw_only=True)
class Manifest(ModelEntry):
    """Manifest of a bundle."""

    kind: Literal["solera bundle"] = "solera bundle"
    format: int = FORMAT
    library: str
    catalogue_version: int
    items: int
    second: SecondModel | None = None
    trained: dict[str, Any]  # data set, protocol and figures, for information; empty if nothing is trained
    sha256: dict[str, str]  # of the other members

    @property
    def models(self) -> tuple[ModelEntry, ...]:
        """The model, or the two models of a blend."""
        return (self, self.second) if self.second else (self,)


class Fields:
    """Fields of a JSON object from outside, each taken once and checked.

    Devices read a manifest at every start, and pydantic takes longer to load than all else they do.
    """

    def __init__(self, given: Mapping[str, Any]) -> None:
        self._left = dict(given)

    def take(self, name: str, kind: type[T], default: T | None = None) -> T:
        """A field of exactly this type; without a default it must be there. Numbers are finite."""
        value: Any = self._left.pop(name, default)
        if kind is float and type(value) is int:
            value = float(value)
        if kind is tuple and type(value) is list:
            value = tuple(value)
        if (type(value) is float and not isfinite(value)) or type(value) is not kind:
            raise ValueError(f"{name} is missing" if value is None else f"{name} is {shortened(value)}")
        return value

    def end(self) -> None:
        """Refuse fields that nothing has asked for."""
        if self._left:
            raise ValueError(f"unknown: {shortened(sorted(self._left))}")


class Bundle:
    """A bundle whose signature holds. What is read from it is checked against the signed manifest."""

    def __init__(self, path: Path, manifest: Manifest, key: bytes, digest: str) -> None:
        self.path, self.manifest, self.key, self.digest = path, manifest, key, digest

    @classmethod
    def open(cls, path: Path, key: bytes | None = None) -> Bundle:
        """Check form and signature; `key` is the only one that may have signed it, if given."""
        from solera.device.keys import is_signed  # noqa: PLC0415 - not to recommend

        with _opened(path) as archive:
            text, signed = archive.read(MANIFEST), archive.read(SIGNATURE)
        public, signature = signed[:KEY_BYTES], signed[KEY_BYTES:]
        if key is not None and public != key:
            raise BundleError(
                f"{path} is signed with another key: {fingerprint(public)}, not {fingerprint(key)}",
                "ask the publisher, through another channel than the file's, whether the key has changed",
            )
        if not is_signed(public, signature, text):
            raise BundleError(f"{path} was changed after it was signed", _AGAIN)
        return cls(path, _manifest(path, text), public, hashlib.sha256(text).hexdigest())

    @classmethod
    def installed(cls, path: Path, key: bytes, digest: str) -> Bundle:
        """Open what a device has installed: `digest` is that of the manifest whose signature it checked."""
        with _opened(path) as archive:
            text = archive.read(MANIFEST)
        if hashlib.sha256(text).hexdigest() != digest:
            raise BundleError(
                f"{path} is not the bundle that this device was set up with",
                "restore the folder from a copy",
            )
        return cls(path, _manifest(path, text), key, digest)

    def read(self, name: str) -> bytes:
        """Read a member and check it against the signed manifest."""
        with _opened(self.path) as archive:
            content = archive.read(name)
        if hashlib.sha256(content).hexdigest() != self.manifest.sha256.get(name):
            raise BundleError(f"{self.path}: {name} differs from what was signed", _AGAIN)
        return content

    def catalogue(self) -> list[Item]:
        """All items, in the order of the tensors' rows, their text safe to show."""
        try:
            items = [
                Item(clean_text(str(id_)), clean_text(str(title)), year, *_more(*more))
                for id_, title, year, *more in json.loads(self.read(CATALOGUE))
            ]
        except (ValueError, TypeError, RecursionError):
            raise BundleError(f"{self.path}: the catalogue cannot be read", _AGAIN) from None
        if len(items) != self.manifest.items or len({item.id for item in items}) != len(items):
            raise BundleError(f"{self.path}: the catalogue does not have {self.manifest.items} items", _AGAIN)
        if not all(item.year is None or isinstance(item.year, int) for item in items):
            raise BundleError(f"{self.path}: the catalogue has an invalid year", _AGAIN)
        return items


def fingerprint(public: bytes) -> str:
    """Fingerprint for people to compare: 32 hexadecimal digits in groups of four."""
    digits = hashlib.sha256(public).hexdigest()[:32]
    return " ".join(digits[at : at + 4] for at in range(0, 32, 4))


def _more(genres: Sequence[str] = (), ids: Mapping[str, str] = {}) -> tuple[tuple[str, ...], dict[str, str]]:
    kept = {kind: clean_text(str(ids[kind])) for kind in ID_KINDS if kind in ids}
    return tuple(clean_text(str(name)) for name in genres), kept


class _opened:  # noqa: N801 - read as a function
    """A zip of exactly the known members, none of them compressed, overlapping or too large."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> zipfile.ZipFile:
        try:
            size = self._path.stat().st_size
            self._archive = zipfile.ZipFile(self._path)
        except OSError as error:
            message = f"{self._path} cannot be read: {error.strerror or error}"
            raise BundleError(message, "check the path of the bundle") from None
        except (zipfile.BadZipFile, ValueError, NotImplementedError, struct.error):
            raise BundleError(f"{self._path} is not a bundle, or is incomplete", _AGAIN) from None
        members = self._archive.infolist()
        plain = all(
            m.compress_type == zipfile.ZIP_STORED
            and m.file_size == m.compress_size <= LIMITS.get(m.filename, 0)
            and not m.flag_bits & 1
            for m in members
        )
        whole = sum(m.file_size for m in members) <= size
        if sorted(m.filename for m in members) != sorted(LIMITS) or not plain or not whole:
            self._archive.close()
            raise BundleError(f"{self._path} is not a bundle: it has unexpected members", _AGAIN)
        return self._archive

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        self._archive.close()
        if isinstance(error, Exception):  # zipfile has no one error for what a file may do to it
            raise BundleError(f"{self._path} is damaged: {error}", _AGAIN) from None


def _manifest(path: Path, text: bytes) -> Manifest:
    try:
        content = json.loads(text)
        kind, version = content["kind"], content["format"]
    except (ValueError, KeyError, TypeError, RecursionError):
        kind = version = None
    if kind != "solera bundle" or not isinstance(version, int):
        raise BundleError(f"{path} is signed, but is not a bundle", _AGAIN)
    if not FORMAT <= version <= IDS_FORMAT:
        older = version < FORMAT
        raise BundleError(
            f"{path} has format {version}, which is {'older' if older else 'newer'} than format "
            f"{FORMAT if older else IDS_FORMAT}, which is read here",
            "ask the publisher for a new bundle" if older else "pip install --upgrade solera",
        )
    try:
        return _read_manifest(content)
    except (ValueError, OverflowError) as error:
        raise BundleError(f"{path}: manifest: {error}", _AGAIN) from None


def _read_manifest(content: Mapping[str, Any]) -> Manifest:
    fields = Fields({name: value for name, value in content.items() if value is not None})
    about, second = _read_entry(fields), None
    if given := fields.take("second", dict, {}):
        of_second = Fields(given)
        entry = _read_entry(of_second)
        second = SecondModel(**vars(entry), weight=of_second.take("weight", float))
        of_second.end()
    fields.take("kind", str)
    made = Manifest(
        **vars(about),
        format=fields.take("format", int),
        library=fields.take("library", str),
        catalogue_version=fields.take("catalogue_version", int),
        items=fields.take("items", int),
        second=second,
        trained=fields.take("trained", dict),
        sha256=fields.take("sha256", dict),
    )
    fields.end()
    fits = {
        "plugins": all(isinstance(name, str) for each in made.models for name in each.plugins),
        "precision": all(each.precision in ("single", "double") for each in made.models),
        "seed": all(each.seed >= 0 for each in made.models),
        "weight": second is None or 0 <= second.weight <= 1,
        "catalogue_version": made.catalogue_version >= 1,
        "items": made.items >= 1,
    }
    for name in (name for name, is_right in fits.items() if not is_right):
        raise ValueError(f"{name} has a value that no publisher writes")
    return made


def _read_entry(fields: Fields) -> ModelEntry:
    return ModelEntry(
        method=fields.take("method", str),
        plugins=fields.take("plugins", tuple),
        options=fields.take("options", dict),
        precision=fields.take("precision", str),  # type: ignore[arg-type]
        seed=fields.take("seed", int, 0),
    )
