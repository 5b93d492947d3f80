"""What the site needs beyond Markdown and its theme.

A folder in the navigation stands for its pages. Links to the repository's other files, which the site lacks,
become text. The search box gets a name.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

# [text](../../src/…): from docs/ or a folder below it to something beside docs/
OUTSIDE = re.compile(
    r"\[([^\]]+)\]\((?:\.\./)+(?:src|research|experiments|packaging|tests|tools|[A-Z]+\.(?:md|cff)|LICENSE)[^)]*\)"
)


def on_config(config: Any) -> Any:
    """The configuration with a folder's pages in the navigation, the index first, in place of the folder."""
    docs = Path(config.docs_dir)

    def filled(entry: Any) -> Any:
        if isinstance(entry, dict):
            return {title: filled(below) for title, below in entry.items()}
        if isinstance(entry, list):
            return [filled(each) for each in entry]
        if not entry.endswith("/"):
            return entry
        pages = sorted((docs / entry).glob("*.md"), key=lambda page: (page.stem != "index", page.stem))
        return [str(page.relative_to(docs)) for page in pages]

    config.nav = filled(config.nav)
    return config


def on_page_markdown(markdown: str, **_: Any) -> str:
    """A page with such links taken off their text."""
    return OUTSIDE.sub(r"\1", markdown)


def on_post_page(output: str, **_: Any) -> str:
    """A page whose search box has a name for those who do not see it."""
    return output.replace(
        'component="search" role="dialog"', 'component="search" role="dialog" aria-label="Search"'
    )
