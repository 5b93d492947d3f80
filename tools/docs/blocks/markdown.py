"""Tables as Markdown has them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

PAIR = "HR@10 / NDCG@10"
NONE_YET = "There are no records yet."


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table."""
    titles = list(head)
    cells = ((cell.replace("|", "\\|") for cell in row) for row in (titles, *rows))
    first, *others = ("| " + "| ".join(f"{cell} " if cell else "" for cell in row) + "|" for row in cells)
    return "\n".join((first, "|---" * len(titles) + "|", *others))


def folded(summary: str, content: str) -> str:
    """Content that a click on its summary opens, on the site and where the repository is read."""
    return f'<details markdown="1">\n<summary>{summary}</summary>\n\n{content}\n\n</details>'


def anchor(heading: str) -> str:
    """The anchor that the site gives a heading."""
    plain = unicodedata.normalize("NFKD", heading).encode("ascii", "ignore").decode()
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain).strip().lower())
