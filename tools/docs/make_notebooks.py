"""Run the notebooks in docs/notebooks and keep what they print, as text.

    python tools/docs/make_notebooks.py            run them all and write their outputs
    python tools/docs/make_notebooks.py --check    change nothing; exit 1 and name what differs

They need MovieLens-100K, which `solera.load` finds in the folder of SOLERA_DATA or downloads.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

FOLDER = Path("docs") / "notebooks"


def main(arguments: Sequence[str], root: Path) -> int:
    """Run all notebooks under `root`, and write or compare them."""
    check, stale = "--check" in arguments, False
    for path in sorted((root / FOLDER).glob("*.ipynb")):
        before = nbformat.read(path, as_version=4)
        after = run(before)
        if printed(before) != printed(after):
            stale = True
            sys.stdout.write(f"{'stale' if check else 'rewritten'}: {path.relative_to(root)}\n")
        if not check:
            nbformat.write(after, path)
    return int(check and stale)


def run(notebook: NotebookNode) -> NotebookNode:
    """The notebook with its outputs as text. Any error in a cell is raised."""
    made = nbformat.from_dict(notebook)
    with TemporaryDirectory() as folder:
        NotebookClient(made, timeout=300, resources={"metadata": {"path": folder}}).execute()
    for cell in made.cells:
        cell.metadata.clear()
        if cell.cell_type == "code":
            cell.execution_count = None
            cell.outputs = [kept for each in cell.outputs if (kept := _as_text(each))]
    made.metadata = {name: made.metadata[name] for name in ("kernelspec",)}
    return made


def printed(notebook: NotebookNode) -> list[str]:
    """What every cell prints."""
    return ["".join(text_of(each) for each in cell.get("outputs", ())) for cell in notebook.cells]


def text_of(output: NotebookNode) -> str:
    """An output as text, nothing for one that only a notebook shows."""
    if output.output_type == "stream":
        return str(output.text) if output.name == "stdout" else ""
    return str(output.get("data", {}).get("text/plain", "")) if output.output_type == "execute_result" else ""


def _as_text(output: NotebookNode) -> NotebookNode | None:
    text = text_of(output)
    if not text:
        return None
    if output.output_type == "stream":
        return nbformat.v4.new_output("stream", name="stdout", text=text)
    return nbformat.v4.new_output("execute_result", data={"text/plain": text})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], Path(__file__).parents[2]))
