"""How much an import reads of a file that somebody else made."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Budget:
    """The limits of one import. Together they keep it below 300 MB of memory, whatever the file is.

    They are far above what people have: twenty years of 100 songs a day are 730,000 listens in a zip of 240
    entries.
    """

    file_bytes: int = 1 << 30  # of the file on the disk
    unpacked_bytes: int = 4 << 30  # of all entries of a zip that are read
    ratio: int = 250  # of these to the zip's own; deflate reaches 1,032, listens to one song all day about 50
    zip_entries: int = 10_000
    line: int = 1 << 20  # characters of a line, of a CSV record, or of one entry of a JSON list
    depth: int = 32  # of JSON lists and objects in each other
    rows: int = 2_000_000  # lines of text, or entries of a JSON list
    name: int = 500  # characters of a title, an artist's name or an id
    users: int = 1_000  # whose plays one file holds
    films: int = 50_000  # of an export whose files are put together


DEFAULT = Budget()
