"""Write docs/papers/: every table and figure of the five papers with Solera's figures, from records.

python tools/docs/make_papers.py            write the pages
python tools/docs/make_papers.py --check    change nothing; exit 1 and name the pages that are stale

Records are what `solera paper run` leaves in experiments/records/papers, and others with equal settings in
experiments/records/results. Figures and sentences of the papers are in src/solera/runs/papers/.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from blocks.markdown import table as markdown

from solera.bench.paper_tables import Grid, data_grid, results, run_grids, settings_grid
from solera.bench.papers import RECORDS, Result, Stored, cells, folders
from solera.runs.papers import Paper, PaperTable, papers

HEAD = """# {name}: tables and figures

{citation}: "{title}". The method itself: [{name}](../methods/{key}.md).

{about}

Every table shows the figures that the paper prints, ours with their standard deviation over seeds, and the
difference. Ours are made under the protocol `paper`, as the paper's are. **All of these figures are leaky**:
the held-out item can be told from the training negatives ([how](../leak.md)). They serve only for comparison.
[Published and reproduced figures](../reproduction.md) explains the commands.
"""


def main(arguments: Sequence[str], root: Path) -> int:
    """Rewrite or check the pages under `root`."""
    check, stale = "--check" in arguments, False
    stored = Stored(folders(root / RECORDS))
    for paper in papers().values():
        path = root / "docs" / "papers" / f"{paper.key}.md"
        text = page(paper, stored)
        if not path.exists() or path.read_text("utf-8") != text:
            stale = True
            sys.stdout.write(f"{'stale' if check else 'written'}: {path.relative_to(root)}\n")
            if not check:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, "utf-8")
    return int(check and stale)


def page(paper: Paper, stored: Stored) -> str:
    """The page of a paper. It does not depend on the data sets of the machine it is made on."""
    head = HEAD.format(**paper.model_dump(include={"name", "citation", "title", "key", "about"}))
    parts = [head, *("\n\n".join(_section(paper, each, stored)) + "\n" for each in paper.table)]
    return "\n".join(parts)


def _section(paper: Paper, table: PaperTable, stored: Stored) -> Iterator[str]:
    yield f"## {table.id.replace('-', ' ').capitalize()}: {table.title}"
    if table.about:
        yield table.about.strip()
    commands = table.commands
    if table.kind == "runs":
        commands = (f"solera paper run {paper.key}/{table.id}", f"solera paper show {paper.key}/{table.id}")
    if commands:
        yield "```console\n" + "\n".join(commands) + "\n```"
    if table.kind == "runs":
        yield from _runs(results(list(cells(paper, table, anywhere=True)), stored))
    elif table.kind == "data":
        yield _grid(data_grid(paper, table, None, known=True))
    elif table.kind == "settings":
        yield _grid(settings_grid(paper, table))


def _runs(found: Sequence[Result]) -> Iterator[str]:
    """All cells that have a printed figure or a record, in one table, and the number of the others."""
    shown = [result for result in found if any(result.cell.published) or result.records]
    if shown:
        grids = run_grids(shown)
        first, published, ours, *others = grids[0].head
        head = ("data set", first, published, f"{ours} (leaky)", *others)
        rows = [(grid.title, *row) for grid in grids for row in grid.rows]
        yield markdown(head, rows)
    if len(shown) < len(found):
        yield f"{len(found) - len(shown)} cells have no printed figure and have not been run."


def _grid(grid: Grid) -> str:
    return markdown(grid.head, grid.rows)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], Path(__file__).parents[2]))
