"""What the site needs beyond Markdown and its theme.

A folder in the navigation stands for its pages. Every notebook becomes a page with its cells and what they
print. Links to the repository's other files, which the site lacks, become text. The search box gets a name.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

# [text](../../src/…): from docs/ or a folder below it to something beside docs/
OUTSIDE = re.compile(
    r"\[([^\]]+)\]\((?:\.\./)+(?:src|research|experiments|packaging|tests|tools|\.github|[A-Z]+\.(?:md|cff)|LICENSE)[^)]*\)"
)

NOTEBOOK = re.compile(r"\(([\w-]+)\.ipynb\)")  # a link in a notebook to another one


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


def on_files(files: Files, *, config: Any) -> Files:
    """The files with a page for every notebook, which can be downloaded there as well."""
    for file in [each for each in files if each.src_uri.endswith(".ipynb")]:
        cells = json.loads(file.content_string)["cells"]
        name = file.src_uri.rpartition("/")[2]
        text = [_as_markdown(cell) for cell in cells]
        text.insert(1, f"This page is a notebook: [{name}]({name}).")
        page = File.generated(config, file.src_uri.replace(".ipynb", ".md"), content="\n\n".join(text))
        files.append(page)
    return files


def _as_markdown(cell: dict[str, Any]) -> str:
    """A cell of a notebook, and what it prints."""
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return NOTEBOOK.sub(r"(\1.md)", source)
    printed = "".join(
        "".join(each.get("text") or each["data"]["text/plain"]) for each in cell["outputs"]
    ).rstrip("\n")
    shown = f"\n\n```text\n{printed}\n```" if printed else ""
    return f"```python\n{source}\n```{shown}"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """A page with such links taken off their text."""
    return OUTSIDE.sub(r"\1", markdown)


def on_post_page(output: str, **_: Any) -> str:
    """A page whose search box has a name for those who do not see it."""
    return output.replace(
        'component="search" role="dialog"', 'component="search" role="dialog" aria-label="Search"'
    )
