"""Files that are made to harm whoever reads them."""

from __future__ import annotations

import json
import struct
import zipfile
import zlib
from pathlib import Path
from typing import NamedTuple

NAME = "listens/2024/1.jsonl"
LISTEN = json.dumps({"listened_at": 1, "track_metadata": {"artist_name": "Film 3"}}) + "\n"
PLAY = "2024-03-01 20:15:00.1234567\t{user}\tf00\tMovie\tFilm 3\tDirectPlay\tWeb\tFirefox\t{seconds}\n"
LONG = 64 << 20


class Hostile(NamedTuple):
    """A file, and as what it is imported."""

    format: str
    path: Path
    columns: str = ""


class Member(NamedTuple):
    """An entry of a zip as its headers tell it, whatever is true."""

    data: bytes
    size: int
    crc: int
    name: str = NAME
    method: int = zipfile.ZIP_DEFLATED
    flags: int = 0


def member(content: bytes, name: str = NAME) -> Member:
    """An honest entry."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return Member(packer.compress(content) + packer.flush(), len(content), zlib.crc32(content), name)


def zipped(folder: Path, members: list[Member], times: int = 1) -> Hostile:
    """A zip of these entries; its directory lists every one of them so many times."""
    body, directory = bytearray(), bytearray()
    for each in members:
        name = each.name.encode()
        fields = (each.flags, each.method, 0, 33, each.crc, len(each.data), each.size, len(name), 0)
        listed = struct.pack("<4s2B5H3L5H2L", b"PK\1\2", 20, 3, 20, *fields, 0, 0, 0, 0, len(body))
        directory += (listed + name) * times
        body += struct.pack("<4s5H3L2H", b"PK\3\4", 20, *fields) + name + each.data
    count = min(len(members) * times, 0xFFFF)
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, count, count, len(directory), len(body), 0)
    path = folder / "listens.zip"
    path.write_bytes(body + directory + end)
    return Hostile("listenbrainz", path)


def listens(folder: Path, text: str, name: str = "listens.jsonl") -> Hostile:
    """A file of ListenBrainz."""
    path = folder / name
    path.write_text(text)
    return Hostile("listenbrainz", path)


def films(folder: Path, text: str) -> Hostile:
    """A file of Letterboxd."""
    path = folder / "watched.csv"
    path.write_text(text)
    return Hostile("letterboxd", path)


def table(folder: Path, text: str) -> Hostile:
    """A table of one's own whose column Film is the title."""
    path = folder / "films.csv"
    path.write_text(text)
    return Hostile("csv", path, "title=Film")


def plays(folder: Path, text: str) -> Hostile:
    """A file of Jellyfin."""
    path = folder / "plays.tsv"
    path.write_text(text)
    return Hostile("jellyfin", path)


def artist(name: str) -> str:
    """A listen to somebody of that name."""
    return json.dumps({"listened_at": 1, "track_metadata": {"artist_name": name}}) + "\n"


def zip_that_grows(folder: Path) -> Hostile:
    """64 MB in a zip of 65 KB."""
    return zipped(folder, [member(b'{"a":"' + b"x" * LONG + b'"}')])


def zip_that_says_less(folder: Path) -> Hostile:
    """64 MB of which the headers say that they are 1,000 bytes."""
    return zipped(folder, [member(b'{"a":"' + b"x" * LONG + b'"}')._replace(size=1000)])


def zip_that_says_more(folder: Path) -> Hostile:
    """A listen of which the headers say that it is 4 GB."""
    return zipped(folder, [member(LISTEN.encode())._replace(size=0xFFFFFFF0)])


def zip_of_many_entries(folder: Path) -> Hostile:
    """100,000 entries of one listen."""
    packed = member(LISTEN.encode())
    return zipped(folder, [packed._replace(name=f"listens/{number}.jsonl") for number in range(100_000)])


def zip_of_overlaps(folder: Path) -> Hostile:
    """10,000 listens that are listed 500 times: 5 million in 40 KB."""
    return zipped(folder, [member(LISTEN.encode() * 10_000)], times=500)


def zip_of_bzip2(folder: Path) -> Hostile:
    """128 MB in a few hundred bytes, which a reader gets in one piece."""
    path = folder / "listens.zip"
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_BZIP2) as archive,
        archive.open(NAME, "w", force_zip64=True) as file,
    ):
        for _ in range(128):
            file.write(b"x" * (1 << 20))
    return Hostile("listenbrainz", path)


def endless_line(folder: Path, format_: str) -> Hostile:
    """1 GB without a line break, most of which takes no room on the disk."""
    start = {"letterboxd": b"Date,Name,Year\n", "csv": b"Film\n"}.get(format_, b"")
    path = folder / "endless"
    with path.open("wb") as file:
        file.write(start)
        file.truncate(1 << 30)
    return Hostile(format_, path, "title=Film" if format_ == "csv" else "")


def long_list(folder: Path) -> Hostile:
    """2.1 million listens in a list."""
    path = folder / "listens.json"
    path.write_text("[" + ",".join([LISTEN] * 2_100_000) + "]")
    return Hostile("listenbrainz", path)
