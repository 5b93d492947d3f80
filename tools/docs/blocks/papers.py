"""The five papers: a page of each with all its tables, and how many printed figures were reproduced."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from blocks.markdown import folded
from blocks.markdown import table as markdown

from solera_research.papers import Paper, PaperTable, papers
from solera_research.papers.cells import Result, Stored, cells
from solera_research.papers.summary import all_results, left_out, summary, unique_runs
from solera_research.papers.tables import (
    data_grid,
    results,
    run_grids,
    settings_grid,
    shown_differences,
)

HEAD = """# {name}: tables and figures

{citation}: "{title}". The method itself: [{name}](../../methods/{key}.md).

{about}

Every table shows the figures that the paper prints, ours with their standard deviation over seeds, and the
difference, of all cells that have a record. Ours are made under the protocol `paper`, as the paper's are.
**All of these figures are leaky**: the held-out item can be told from the training negatives
([how](../../concepts/leak.md)). They serve only for comparison. [Published and reproduced
figures](../reproduction.md) explains the commands.
"""


def paper_pages(stored: Stored) -> dict[str, str]:
    """The page of every paper, by its place in docs."""
    return {f"results/papers/{paper.key}.md": page(paper, stored) for paper in papers().values()}


def page(paper: Paper, stored: Stored) -> str:
    """The page of a paper. It does not depend on the data sets of the machine it is made on."""
    shown = paper.model_dump(include={"name", "title", "key", "about"})
    head = HEAD.format(citation=paper.rows.citation, **shown)
    if paper.not_reproducible:
        head += f"\n**Not reproducible from the paper.** {paper.not_reproducible.strip()}\n"
    parts = [head]
    parts += ["\n\n".join(_section(paper, each, stored)) + "\n" for each in paper.table]
    return "\n".join([*parts, *_outside(paper, stored)])


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
        grid = data_grid(paper, table, None, known=True)
        yield markdown(grid.head, grid.rows)
    elif table.kind == "settings":
        grid = settings_grid(paper, table)
        yield markdown(grid.head, grid.rows)


def _runs(found: Sequence[Result]) -> Iterator[str]:
    """All cells that have a record, in one table, and the names of the others."""
    shown = [result for result in found if result.records]
    if shown:
        grids = run_grids(shown)
        first, published, ours, *others = grids[0].head
        head = ("data set", first, published, f"{ours} (leaky)", *others)
        table = markdown(head, [(grid.title, *row) for grid in grids for row in grid.rows])
        yield folded(f"{len(shown)} of {len(found)} cells", table)
    without: dict[str, list[str]] = {}
    for result in found:
        if not result.records:
            without.setdefault(result.cell.column, []).append(result.cell.row)
    if without:
        rows = {column: [r.cell.row for r in found if r.cell.column == column] for column in without}
        named = (
            f"{column} ({'all' if names == rows[column] else ', '.join(names)})"
            for column, names in without.items()
        )
        yield f"Without a record: {'; '.join(named)}."


def _outside(paper: Paper, stored: Stored) -> Iterator[str]:
    """A sentence for every cell that is further than 0.03 from the printed figures."""
    _, outside = summary(all_results([paper], stored))
    if outside:
        same: dict[tuple[str, str, str, str], list[str]] = {}
        for each in outside:
            key = (each.row, each.dataset, shown_differences(each.difference), each.why)
            same.setdefault(key, []).append(each.table.partition("/")[2])
        rows = [(", ".join(tables), *key) for key, tables in same.items()]
        head = ("table", "row", "data set", "difference", "why, as far as it is known")
        yield f"## Cells that are further than 0.03 away\n\n{markdown(head, rows)}\n"


def unique(stored: Stored) -> str:
    """Counts of unique runs, by where their settings come from."""
    runs = unique_runs(all_results(papers().values(), stored))
    rows = [(each.settings, *map(str, (each.run, each.within, each.outside))) for each in runs]
    return markdown(("settings", "runs with a record", "within", "outside"), rows)


def not_attempted(stored: Stored) -> str:
    """What no more runs are made of."""
    found = left_out(list(all_results(papers().values(), stored)))
    head = ("paper", "tables and rows", "cells without a record", "why")
    return markdown(head, [tuple(map(str, each)) for each in found])


def reproduced(stored: Stored) -> str:
    """Counts by paper of the cells that print HR@10 or NDCG@10."""
    lines, _ = summary(all_results(papers().values(), stored))
    rows = []
    for paper in papers().values():
        mine = [line for line in lines if line.paper == paper.name]
        counts = (
            sum(getattr(line, name) for line in mine) for name in ("published", "run", "within", "outside")
        )
        rows.append((f"[{paper.name}](papers/{paper.key}.md)", *map(str, counts)))
    totals = (str(sum(int(row[number]) for row in rows)) for number in range(1, 5))
    return markdown(("paper", "cells", "with a record", "within", "outside"), [*rows, ("all", *totals)])
