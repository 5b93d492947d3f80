"""Fill the marked blocks of the documents from the program and from the records in
experiments/records.

    python tools/docs/make_pages.py            rewrite the blocks in place
    python tools/docs/make_pages.py --check    change nothing; exit 1 and name the pages that are stale

A block stands between `<!-- kind: names -->` and `<!-- end -->`. docs/index.md is README with other links,
and the pages in docs/results/papers are made as a whole. Records are what `solera bench run` leaves of a
matrix with presets, `solera attack --record` of an attack, `solera poison --record` of a poisoned training.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent))

from blocks.attacks import (
    Attacks,
    attack_commands,
    attacks_among_touched,
    attacks_by_mode,
    attacks_on_single,
    attacks_on_sums,
    on,
    plain,
)
from blocks.board import Boards, board_tables, not_on_the_board, pair_by_pair, read_boards, searches
from blocks.by_users import Points, privacy_by_users, privacy_settings, read_points
from blocks.leak import Leak, authors, counter_table, repositories, repositories_summary
from blocks.papers import not_attempted, paper_pages, reproduced, unique
from blocks.poisoned import Poisonings, of_dataset, other_poisoning, poisoning
from blocks.protected import Private, asked_for, differential_privacy, modes
from blocks.results import Records, figures, headline, reproduction
from blocks.settings import (
    baseline_options,
    choices,
    options,
    plugin_choices,
    plugin_options,
    preset_table,
)
from blocks.transformers import (
    Published,
    cost_of_federation,
    read_published,
    transformer_boards,
)

from solera.study.records import Record, Store
from solera_research.inference.records import AttackRecord
from solera_research.papers.cells import Stored
from solera_research.poisoning.records import PoisonRecord

RECORDS = Path("experiments") / "records"
BLOCK = re.compile(r"<!-- ([a-z' ]+)(?:: ([^\n]+?))? -->\n(?:(?!<!-- ).)*<!-- end -->", re.DOTALL)
LINK = re.compile(r"\]\((?!\w+:|#)([^)]+)\)")


class Kept(NamedTuple):
    """All records of a repository."""

    records: Records
    board: Records
    papers: Stored  # under the protocol of the papers
    boards: Boards
    attacks: Attacks
    poisonings: Poisonings
    private: Private
    by_users: Points
    transformers: Records
    published: Sequence[Published]
    leak: Leak

    @classmethod
    def read(cls, root: Path) -> Kept:
        """Those under `root`."""
        records = root / RECORDS

        def read_all(path: Path) -> Records:
            return Store(path, Record).all()

        return cls(
            read_all(records / "results"),
            read_all(records / "board"),
            Stored(records / "papers"),
            read_boards(root),
            Store(records / "attacks", AttackRecord).all(),
            Store(records / "poisoning", PoisonRecord).all(),
            Private(read_all(records / "privacy"), asked_for(root / "experiments" / "matrices")),
            read_points(records / "privacy-size"),
            read_all(records / "transformers"),
            read_published(root / "experiments" / "published.toml"),
            Leak.read(root / "experiments"),
        )


def main(arguments: Sequence[str], root: Path) -> int:
    """Rewrite or check all pages under `root`."""
    check = "--check" in arguments
    kept, stale = Kept.read(root), False
    for place, text in paper_pages(kept.papers).items():
        stale |= written(root / "docs" / place, text, root, check)
    for page in (root / "README.md", *sorted((root / "docs").rglob("*.md"))):
        filled = BLOCK.sub(lambda block: fill(block, kept), page.read_text("utf-8"))
        stale |= written(page, filled, root, check)
    stale |= written(root / "docs/index.md", index((root / "README.md").read_text("utf-8")), root, check)
    return int(check and stale)


def written(page: Path, text: str, root: Path, check: bool) -> bool:
    """Whether a page is not as it should be. If so it is named, and written unless it is only checked."""
    stale = not page.exists() or page.read_text("utf-8") != text
    if stale:
        sys.stdout.write(f"{'stale' if check else 'rewritten'}: {page.relative_to(root)}\n")
        if not check:
            page.parent.mkdir(parents=True, exist_ok=True)
            page.write_text(text, "utf-8")
    return stale


def index(readme: str) -> str:
    """The site's first page: README with links that lead on from docs."""

    def led_on(link: re.Match[str]) -> str:
        return f"]({link[1][5:] if link[1].startswith('docs/') else f'../{link[1]}'})"

    return LINK.sub(led_on, readme)


def fill(block: re.Match[str], kept: Kept) -> str:
    """The block with its contents made anew."""
    (
        records,
        board,
        papers,
        found,
        attacks,
        poisonings,
        private,
        by_users,
        transformers,
        others,
        leak,
    ) = kept
    makers: dict[str, Callable[..., str]] = {
        "choices": choices,
        "options": options,
        "plugin options": plugin_options,
        "plugin choices": plugin_choices,
        "presets": preset_table,
        "baseline options": baseline_options,
        "figures": lambda name: figures(name, records, papers),
        "reproduction": lambda *datasets: reproduction(papers, datasets),
        "boards": lambda: board_tables(found),
        "searches": lambda: searches(found),
        "not on the board": lambda: not_on_the_board(found),
        "comparisons": lambda: pair_by_pair(found),
        "headline": lambda: headline(board, papers),
        "cost of federation": lambda: cost_of_federation(transformers),
        "transformers": lambda: transformer_boards(transformers, others),
        "counter": lambda: counter_table(leak),
        "papers": lambda: reproduced(papers),
        "unique runs": lambda: unique(papers),
        "not attempted": lambda: not_attempted(papers),
        "repositories summary": lambda: repositories_summary(leak),
        "repositories": lambda: repositories(leak),
        "authors' code": lambda: authors(leak),
        "attacks on single uploads": lambda dataset: attacks_on_single(plain(attacks, dataset)),
        "attacks among touched rows": lambda dataset: attacks_among_touched(plain(attacks, dataset)),
        "attacks on sums": lambda dataset: attacks_on_sums(plain(attacks, dataset), "target"),
        "attacks on anybody in a sum": lambda dataset: attacks_on_sums(plain(attacks, dataset), "anybody"),
        "attacks by mode": lambda dataset: attacks_by_mode(on(attacks, dataset)),
        "modes": lambda dataset: modes(private, on(attacks, dataset), dataset),
        "poisoning": lambda dataset: poisoning(of_dataset(poisonings, dataset)),
        "other poisoning": lambda dataset: other_poisoning(of_dataset(poisonings, dataset)),
        "poisoning commands": lambda dataset: attack_commands(of_dataset(poisonings, dataset)),
        "differential privacy": lambda dataset: differential_privacy(private, dataset),
        "privacy by users": lambda kind: privacy_by_users(by_users, kind),
        "privacy settings": lambda: privacy_settings(by_users),
        "attack commands": lambda dataset: attack_commands(on(attacks, dataset)),
    }
    kind, names = block[1], block[2].split(", ") if block[2] else []
    return f"{block[0].splitlines()[0]}\n\n{makers[kind](*names)}\n\n<!-- end -->"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], Path(__file__).parents[2]))
