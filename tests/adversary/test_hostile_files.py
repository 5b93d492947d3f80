"""Files that are made to harm whoever imports them, each refused in a process whose memory is measured."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import hostile_files as hostile
import pytest
from attack import attack
from hostile_files import LISTEN, PLAY, Hostile, member, zipped
from imported import MOST, imported


def refused(make: Callable[[Path], Hostile], said: str, *, before: str, name: str, slow: bool = False) -> Any:
    """A file, what is said of it, and what it did to version 0.1."""
    promise = f"An import refuses {name}, and stays below {MOST} MB."
    marks = [attack("file", promise, before=before), *([pytest.mark.slow] if slow else [])]
    return pytest.param(make, said, marks=marks, id=name.replace(" ", "-"))


def endless(format_: str, before: str) -> Any:
    return refused(
        lambda folder: hostile.endless_line(folder, format_),
        "more than 1,048,576 characters",
        before=before,
        name=f"a line of {format_} without end",
    )


def listed(text: str) -> Callable[[Path], Hostile]:
    return lambda folder: hostile.listens(folder, text, "listens.json")


FILM = "Date,Name,Year\n2024-01-01,Film 3,"


@pytest.mark.parametrize(
    ("make", "said"),
    [
        refused(
            hostile.zip_that_says_less,
            "is damaged",
            before="refused",
            name="a zip that says it is small",
        ),
        refused(
            hostile.zip_that_says_more,
            "unpacks to more than",
            before="taken",
            name="a zip that says it is large",
        ),
        refused(
            hostile.zip_of_many_entries,
            "has more than 10,000 entries",
            before="taken, 132 MB; 846 MB with 2 million entries",
            name="a zip of 100,000 entries",
        ),
        refused(
            hostile.zip_of_overlaps,
            "overlapping entries",
            before="40 KB were taken as 5 million listens, 1.2 GB and 136 s",
            name="a zip whose entries overlap",
        ),
        refused(
            hostile.zip_of_bzip2,
            "unsupported compression method",
            before="refused, but only after 345 MB; 1.1 GB for a zip of 577 bytes that unpacks to 512 MB",
            name="a zip of bzip2",
        ),
        refused(
            lambda folder: zipped(folder, [member(LISTEN.encode())._replace(flags=1)]),
            "is encrypted",
            before="RuntimeError traceback",
            name="an encrypted zip",
        ),
        refused(
            lambda folder: zipped(folder, [member(LISTEN.encode())._replace(method=99)]),
            "unsupported compression method",
            before="NotImplementedError traceback",
            name="a zip of an unknown method",
        ),
        refused(
            lambda folder: zipped(folder, [member(LISTEN.encode())._replace(data=b"\x07\xff\xff\xff")]),
            "is damaged",
            before="zlib.error traceback",
            name="a zip of damaged data",
        ),
        refused(
            lambda folder: zipped(folder, [member(LISTEN.encode().replace(b"Film", b"\xff\xfe"))]),
            "not text in UTF-8",
            before="refused",
            name="a zip of bytes that are no text",
        ),
        endless("listenbrainz", "refused, but only after 2.1 GB"),
        endless("letterboxd", "refused, but only after 2.1 GB"),
        endless("jellyfin", "refused, but only after 2.1 GB"),
        endless("csv", "refused, but only after 2.1 GB"),
        refused(
            listed("[" * 100_000 + "]" * 100_000),
            "nested more than 32 deep",
            before="RecursionError traceback",
            name="a JSON list too deep",
        ),
        refused(
            listed("[[" + "[]," * 20_000_000 + "[]]]"),
            "more than 1,048,576 characters",
            before="refused, but only after 1.5 GB",
            name="a JSON list of one long entry",
        ),
        refused(
            hostile.long_list,
            "more than 2,000,000 rows",
            before="taken, 1.2 GB",
            name="a JSON list too long",
            slow=True,
        ),
        refused(
            lambda folder: hostile.table(folder, 'Film\n"' + "x" * hostile.LONG + '"\n'),
            "more than 1,048,576 characters",
            before="refused, but only after 193 MB, three times its size",
            name="a CSV field of 64 MB",
        ),
        refused(
            lambda folder: hostile.table(folder, "Film\n" + '"\n",' * (40 << 20)),
            "more than 1,048,576 characters",
            before="refused, but only after 708 MB",
            name="a CSV record without end",
        ),
        refused(
            lambda folder: hostile.films(folder, FILM + "9" * 4000 + "\n"),
            "a number of 4,000 characters",
            before="taken as a year of 4,000 digits",
            name="a year of 4,000 digits",
        ),
        refused(
            lambda folder: hostile.listens(folder, LISTEN.replace("1", "9" * 5000, 1)),
            "not JSON",
            before="refused",
            name="a time of 5,000 digits",
        ),
        refused(
            lambda folder: hostile.films(folder, FILM.replace("Film", "Fi\0lm") + "1999\n"),
            "a NUL byte",
            before="taken, with the NUL byte in the title",
            name="a NUL byte",
        ),
        refused(
            lambda folder: hostile.plays(
                folder, "".join(PLAY.format(user="u" * 400 + str(n), seconds=900) for n in range(2_000))
            ),
            "more than 1,000 users",
            before="refused, but all users were kept and shown: 2.3 GB with 600,000",
            name="plays of too many users",
        ),
    ],
)
def test_a_file_is_refused(device, tmp_path, make, said, reached):
    outcome = imported(device.path, make(tmp_path))
    assert outcome.refused, outcome.complaint
    assert said in outcome.answer["error"]
    assert len(outcome.answer["error"] + outcome.answer["next"]) < 1000
    assert outcome.peak < MOST
    assert device.status()["users"] == []
    reached(f"refused, {outcome.peak:.0f} MB")
