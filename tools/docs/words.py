"""Count the words of README and docs by folder: prose, code on the pages, and what programs made.

python tools/docs/words.py            a line per folder
python tools/docs/words.py --pages    a line per page too

A word is what spaces separate. Code is in fences. Made are blocks between `<!-- kind -->` and `<!-- end -->`,
and whole pages that a program writes. All the rest is prose, tables by hand among it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

MADE = ("docs/index.md", "docs/reference/commands", "docs/results/papers", "docs/results/scale.md")
BLOCK = re.compile(r"<!-- [^\n]+? -->\n(?:(?!<!-- ).)*<!-- end -->", re.DOTALL)
FENCE = re.compile(r"^ *(```+).*?^ *\1$", re.DOTALL | re.MULTILINE)


class Words(NamedTuple):
    """Of a page, or of several."""

    prose: int = 0
    code: int = 0
    made: int = 0

    @classmethod
    def sum(cls, each: Iterable[Words]) -> Words:
        """Of all of them."""
        return cls(*map(sum, zip(cls(), *each, strict=True)))


def count(page: Path, name: str) -> Words:
    """Those of one page. A page with a frame is made from it, so only the frame is prose."""
    text, frame = page.read_text("utf-8"), page.with_suffix(".frame")
    if name.startswith(MADE):
        return Words(made=len(text.split()))
    if frame.exists():
        return Words(
            len(frame.read_text("utf-8").split()),
            made=len(text.split()) - len(frame.read_text("utf-8").split()),
        )
    without = BLOCK.sub("", text)
    prose = FENCE.sub("", without)
    whole, rest, left = (len(each.split()) for each in (text, without, prose))
    return Words(left, rest - left, whole - rest)


def pages(root: Path) -> dict[str, Words]:
    """All pages of the documents, README first."""
    files = (root / "README.md", *sorted((root / "docs").rglob("*.md")))
    return {name: count(file, name) for file in files for name in (str(file.relative_to(root)),)}


def main(arguments: Sequence[str], root: Path = Path(__file__).parents[2]) -> int:
    """Print the table."""
    found = pages(root)
    groups: dict[str, list[str]] = {}
    for name in found:
        groups.setdefault(
            "/".join(name.split("/")[:2]) if name.count("/") > 1 else "README, index", []
        ).append(name)
    print(f"{'prose':>8}{'code':>8}{'made':>8}  pages")
    for group, names in groups.items():
        words = Words.sum(found[name] for name in names)
        print(f"{words.prose:8,}{words.code:8,}{words.made:8,}  {group} ({len(names)})")
        for name in names if "--pages" in arguments else ():
            print(f"{found[name].prose:8,}{found[name].code:8,}{found[name].made:8,}    {name}")
    words = Words.sum(found.values())
    print(f"{words.prose:8,}{words.code:8,}{words.made:8,}  all ({len(found)})")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
