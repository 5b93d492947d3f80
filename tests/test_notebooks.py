"""The notebooks run, and print what is kept of them.

As the pages, they run twice: on a small made-up data set that goes by the name of ml-100k, one of them every
day and the others by name, and, by name, on the real one, where they must print what the site shows.
"""

from __future__ import annotations

import os
from pathlib import Path

import nbformat
import pytest

from programs import program

NOTEBOOKS = sorted((Path(__file__).parent.parent / "docs" / "notebooks").glob("*.ipynb"))
made = program("docs/make_notebooks")


def test_there_are_four():
    assert [path.stem for path in NOTEBOOKS] == [
        *("federation-against-central", "first-model", "own-method", "privacy")
    ]


def test_an_error_in_a_cell_is_raised():
    broken = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1 / 0")])
    broken.metadata = nbformat.read(NOTEBOOKS[0], as_version=4).metadata
    with pytest.raises(Exception, match="ZeroDivisionError"):
        made.run(broken)


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.stem, marks=[] if path.stem == "own-method" else pytest.mark.slow)
        for path in NOTEBOOKS
    ],
)
def test_a_notebook_on_small_data(path, small_ml_100k, monkeypatch):
    monkeypatch.setenv("SOLERA_DATA", str(small_ml_100k))
    notebook = nbformat.read(path, as_version=4)
    shown, printed = made.printed(notebook), made.printed(made.run(notebook))
    assert [bool(text) for text in printed] == [bool(text) for text in shown]
    assert printed != shown  # the figures are those of these data


@pytest.mark.slow
@pytest.mark.skipif(not os.environ.get("SOLERA_DATA"), reason="SOLERA_DATA is not set")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_prints_what_is_shown(path):
    notebook = nbformat.read(path, as_version=4)
    assert made.printed(made.run(notebook)) == made.printed(notebook)
