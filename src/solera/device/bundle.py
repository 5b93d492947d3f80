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
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from solera.core.errors import BundleError
from solera.core.text import clean_text
from solera.device.keys import KEY_BYTES, SIGNATURE_BYTES, fingerprint, is_signed

FORMAT = 1
COMPACT_FORMAT = 2  # the same with compact weights of a one-round method (`device.compact`)
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
LIMITS = {  # bytes
    MANIFEST: 1 << 20,
    SIGNATURE: KEY_BYTES + SIGNATURE_BYTES,
    CATALOGUE: 1 << 28,
    TENSORS: 6 << 30,
}
_AGAIN = "get the file again from its publisher"


class Item(NamedTuple):
    """One item of a catalogue."""

    id: str
    title: str
    year: int | None
    genres: tuple[str, ...] = ()
    ids: Mapping[str, str] = {}  # of the same item elsewhere, by kind


class ModelEntry(BaseModel):
    """What a manifest says of a model."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    method: str
    plugins: tuple[str, ...]
    options: dict[str, Any]
    precision: Literal["single", "double"]
    seed: int = Field(default=0, ge=0, description="of how parameters start, and of what clients draw")

    @property
    def full_method(self) -> str:
        """The method's name with its plug-ins."""
        return "+".join([self.method, *self.plugins])


class SecondModel(ModelEntry):
    """The second model of a blend (`runs.blend`)."""

    weight: float = Field(ge=0, le=1, description="of its standardised scores; the first has the rest")


class Manifest(ModelEntry):
    """Manifest of a bundle."""

    kind: Literal["solera bundle"] = "solera bundle"
    format: int = FORMAT
    library: str
    catalogue_version: int = Field(ge=1)
    items: int = Field(ge=1)
    second: SecondModel | None = None
    trained: dict[str, Any] = Field(
        description="data set, protocol and figures, for information; empty if nothing has been trained"
    )
    sha256: dict[str, str] = Field(description="of the other members")

    @property
    def models(self) -> tuple[ModelEntry, ...]:
        """The model, or the two models of a blend."""
        return (self, self.second) if self.second else (self,)


class Bundle:
    """A bundle whose signature holds. What is read from it is checked against the signed manifest."""

    def __init__(self, path: Path, manifest: Manifest, key: bytes, digest: str) -> None:
        self.path, self.manifest, self.key, self.digest = path, manifest, key, digest

    @classmethod
    def open(cls, path: Path, key: bytes | None = None) -> Bundle:
        """Check form and signature; `key` is the only one that may have signed it, if given."""
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
        return Manifest.model_validate(content)
    except ValidationError as error:
        wrong = error.errors()[0]
        where = ".".join(map(str, wrong["loc"]))
        raise BundleError(f"{path}: manifest: {where}: {wrong['msg']}", _AGAIN) from None
