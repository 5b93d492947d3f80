"""What the site needs beyond Markdown: links to the repository's other files, which it lacks, become text."""

from __future__ import annotations

import re
from typing import Any

# [text](../../src/…): from docs/ or a folder below it to something beside docs/
OUTSIDE = re.compile(
    r"\[([^\]]+)\]\((?:\.\./)+(?:src|experiments|packaging|tests|tools|[A-Z]+\.md|LICENSE)[^)]*\)"
)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """A page with such links taken off their text."""
    return OUTSIDE.sub(r"\1", markdown)
