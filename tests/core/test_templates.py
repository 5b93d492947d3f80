"""Templates: what is filled in is never markup, and nothing may be missing."""

from __future__ import annotations

import pytest
from jinja2 import UndefinedError

from solera.core.text import render


def test_what_is_filled_in_is_escaped() -> None:
    assert render("solera.runs", "progress.html", title="<b> & 'c'", done=None).strip() == (
        "<p>&lt;b&gt; &amp; &#39;c&#39; …</p>"
    )


def test_what_is_missing_is_an_error() -> None:
    with pytest.raises(UndefinedError, match="'title' is undefined"):
        render("solera.runs", "progress.html", done=None)
