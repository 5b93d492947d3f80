"""Write docs/papers/: every table and figure of the five papers with Solera's figures, from records.

The summary of all papers goes into marked blocks of docs/reproduction.md, and what was run of each paper
into that of docs/authors.md.

python tools/docs/make_papers.py            write the pages
python tools/docs/make_papers.py --check    change nothing; exit 1 and name the pages that are stale

Records are what `solera paper run` leaves in experiments/records/papers, and others with equal settings in
experiments/records/results. Figures and sentences of the papers are in research/src/solera_research/papers/.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from blocks.markdown import anchor
from blocks.markdown import table as markdown

from solera_research.papers import Paper, PaperTable, papers
from solera_research.papers.cells import RECORDS, Result, Stored, cells
from solera_research.papers.summary import all_results, left_out, summary, total, unique_runs, verdict
from solera_research.papers.tables import (
    Grid,
    data_grid,
    results,
    run_grids,
    settings_grid,
    shown_differences,
)

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
    stored = Stored(root / RECORDS)
    pages = {f"papers/{paper.key}.md": page(paper, stored) for paper in papers().values()}
    found = list(all_results(papers().values(), stored))
    for name, kind, text in (
        ("reproduction.md", "runs", runs_text(found)),
        ("reproduction.md", "summary", summary_text(found)),
        ("reproduction.md", "not attempted", not_attempted(found)),
        ("authors.md", "papers", overview(found)),
    ):
        before = pages.get(name) or (root / "docs" / name).read_text("utf-8")
        pages[name] = filled(before, kind, text)
    for name, text in pages.items():
        path = root / "docs" / name
        if not path.exists() or path.read_text("utf-8") != text:
            stale = True
            sys.stdout.write(f"{'stale' if check else 'written'}: {path.relative_to(root)}\n")
            if not check:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, "utf-8")
    return int(check and stale)


def filled(text: str, kind: str, content: str) -> str:
    """A page with the contents of the block between two marks made anew."""
    begin, end = f"<!-- from-papers: {kind} -->", "<!-- from-papers ends -->"
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}\n\n{content}\n\n{end}{after}"


def runs_text(found: Sequence[Result]) -> str:
    """Counts of unique runs, by where their settings come from."""
    head = ("settings", "run", "within", "outside", "not run", "not attempted")
    return markdown(head, [tuple(map(str, each)) for each in unique_runs(found)])


def not_attempted(found: Sequence[Result]) -> str:
    """What no more runs are made of."""
    head = ("paper", "tables and rows", "cells without a record", "why")
    return markdown(head, [tuple(map(str, each)) for each in left_out(found)])


def summary_text(found: Sequence[Result]) -> str:
    """Counts by paper and data set, and a sentence for every cell that is not close."""
    lines, outside = summary(found)
    head = ("paper", "data set", "cells", "run", "within", "outside", "not run", "cannot be run")
    counts = markdown(head, [tuple(map(str, line)) for line in (*lines, total(lines))])
    cells_ = [
        (f"`{each.table}`", each.row, each.dataset, shown_differences(each.difference), each.why)
        for each in outside
    ]
    if not cells_:
        return f"{counts}\n\nNo cell that was run is outside."
    return f"{counts}\n\n{markdown(('table', 'row', 'data set', 'difference', 'why'), cells_)}"


def overview(found: Sequence[Result]) -> str:
    """What was run of each paper, with the command of each table."""
    rows = []
    for paper in papers().values():
        for table in (each for each in paper.table if each.kind == "runs"):
            here = [each for each in found if each.cell.paper is paper and each.cell.table is table]
            counts = [verdict(each) for each in here]
            page_ = f"papers/{paper.key}.md#{anchor(heading(table))}"
            rows.append(
                (
                    f"[{paper.name}, {table.id.replace('-', ' ')}]({page_})",
                    f"`solera paper run {paper.key}/{table.id}`",
                    f"{sum(bool(each.records) for each in here)} of {len(here)}",
                    str(counts.count("within")),
                    str(counts.count("outside")),
                )
            )
    return markdown(("table", "command", "cells run", "within", "outside"), rows)


def heading(table: PaperTable) -> str:
    """Of a table's section."""
    return f"{table.id.replace('-', ' ').capitalize()}: {table.title}"


def page(paper: Paper, stored: Stored) -> str:
    """The page of a paper. It does not depend on the data sets of the machine it is made on."""
    shown = paper.model_dump(include={"name", "title", "key", "about"})
    head = HEAD.format(citation=paper.rows.citation, **shown)
    if paper.not_reproducible:
        head += f"\n**Not reproducible from the paper.** {paper.not_reproducible.strip()}\n"
    parts = [head, *("\n\n".join(_section(paper, each, stored)) + "\n" for each in paper.table)]
    return "\n".join(parts)


def _section(paper: Paper, table: PaperTable, stored: Stored) -> Iterator[str]:
    yield f"## {heading(table)}"
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
        yield f"Cells that have no printed figure and have not been run: {len(found) - len(shown)}."


def _grid(grid: Grid) -> str:
    return markdown(grid.head, grid.rows)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], Path(__file__).parents[2]))
