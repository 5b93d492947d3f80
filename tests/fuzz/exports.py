"""Exports of histories with something wrong in them, imported in a process of their own.

python tests/fuzz/exports.py DEVICE FOLDER COUNT
"""

from __future__ import annotations

import io
import json
import random
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from mutations import bytes_of, fuzz, json_of

from solera.core.errors import SoleraError
from solera.device.device import Device
from solera.device.importers import import_file

TABLE = b"user,item,time,title\n" + b"".join(
    f"u{user},i{(user * 3 + n) % 9},{100 + n},Film {n}\n".encode() for user in range(5) for n in range(6)
)
LISTEN = {
    "listened_at": 1700000000,
    "track_metadata": {
        "artist_name": "Film 3",
        "track_name": "t",
        "mbid_mapping": {"artists": [{"artist_credit_name": "Film 4"}]},
    },
}
LISTENS = (json.dumps(LISTEN) + "\n").encode() * 3
PLAY = b"2024-03-01 20:15:00.1234567\taa11\tf00d\tMovie\tFilm 3\tDirectPlay\tJellyfin Web\tFirefox\t7800\n"
FILMS = b"Date,Name,Year,Letterboxd URI\n2024-01-02,Film 3,1990,https://x\n2024-01-03,Film 4,1990,https://y\n"
COLUMNS = {"item": "item", "title": "title", "time": "time"}


def zipped(content: bytes) -> bytes:
    """An export of ListenBrainz."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("user.json", '{"username": "me"}')
        archive.writestr("listens/2023/11.jsonl", content)
        archive.writestr("listens/2023/12.jsonl", LISTENS)
    return file.getvalue()


def odd_zip(draw: random.Random, good: bytes) -> bytes:
    """A zip that is wrong itself, or a sound one of wrong content."""
    return bytes_of(draw, zipped(good)) if draw.random() < 0.5 else zipped(bytes_of(draw, good))


class Kind(NamedTuple):
    """A kind of file: its name, format, good content, and what goes wrong with it."""

    name: str
    format: str
    good: bytes
    odd: Callable[[random.Random, bytes], bytes] = bytes_of


KINDS = (
    Kind("watched.csv", "letterboxd", FILMS),
    Kind("listens.jsonl", "listenbrainz", LISTENS),
    Kind("listens.json", "listenbrainz", json.dumps([LISTEN] * 3).encode(), json_of),
    Kind("listens.zip", "listenbrainz", LISTENS, odd_zip),
    Kind("plays.tsv", "jellyfin", PLAY * 3),
    Kind("own.csv", "csv", TABLE),
    Kind("own.tsv", "csv", TABLE.replace(b",", b"\t")),
)


def main(folder: Path, place: Path, count: int) -> None:
    """Import so many files; how many of each kind were taken and refused."""
    device = Device.open(folder)
    device.store.connection.execute("PRAGMA synchronous = OFF")
    found = {kind.name: [0, 0] for kind in KINDS}

    def attempt(draw: random.Random) -> None:
        kind = draw.choice(KINDS)
        path = place / kind.name
        path.write_bytes(kind.odd(draw, kind.good))
        try:
            import_file(device, kind.format, path, COLUMNS if kind.format == "csv" else {}, "c")
            found[kind.name][0] += 1
        except SoleraError as error:
            assert error.message and error.hint, error
            found[kind.name][1] += 1
            raise

    fuzz(count, attempt)
    print(json.dumps({"kinds": found, "modules": sorted(sys.modules)}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
