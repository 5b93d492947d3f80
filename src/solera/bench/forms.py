"""A table in three forms: Markdown, CSV and LaTeX."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import dataclass
from pathlib import Path

from solera.bench.statistics import Interval, Spread

NONE = "–"
SIGNS = {"±": r"$\pm$", "−": "$-$", "·": r"$\cdot$", "–": "--", "^": r"\^{}", "~": r"\~{}"}  # in LaTeX

Cell = str | int | float | Spread | Interval


@dataclass(frozen=True)
class Table:
    """A title, a head and rows; the same cells in three forms."""

    name: str  # of its files
    title: str
    head: tuple[str, ...]
    rows: list[tuple[Cell, ...]]
    note: str

    def markdown(self) -> str:
        """With title and note."""
        return f"# {self.title}\n\n{self.grid()}\n\n{self.note}\n"

    def grid(self) -> str:
        """In Markdown, head and rows alone."""
        rows = [self.head, *(tuple(map(text, row)) for row in self.rows)]
        first, *others = ("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows)
        return "\n".join((first, "|---" * len(self.head) + "|", *others))

    def csv(self) -> str:
        """A column for every number: a spread takes two, an interval three."""
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        parts = [max((_parts(row[column]) for row in self.rows), key=len) for column in range(len(self.head))]
        named = zip(self.head, parts, strict=True)
        writer.writerow(f"{title} {part}".rstrip() for title, names in named for part in names)
        for row in self.rows:
            filled = (_values(cell, len(names)) for cell, names in zip(row, parts, strict=True))
            writer.writerow(value for values in filled for value in values)
        return file.getvalue()

    def latex(self) -> str:
        """A `table` for the package booktabs."""
        rows = [self.head, *(tuple(map(text, row)) for row in self.rows)]
        first, *others = (" & ".join(map(_latex, row)) + r" \\" for row in rows)
        return "\n".join(
            (
                r"\begin{table}",
                rf"\caption{{{_latex(self.title)}. {_latex(self.note)}}}",
                rf"\begin{{tabular}}{{l{'r' * (len(self.head) - 1)}}}",
                r"\toprule",
                first,
                r"\midrule",
                *others,
                r"\bottomrule",
                r"\end{tabular}",
                r"\end{table}",
                "",
            )
        )

    def write(self, folder: Path) -> list[Path]:
        """Write the Markdown, CSV and LaTeX files."""
        texts = {"md": self.markdown(), "csv": self.csv(), "tex": self.latex()}
        folder.mkdir(parents=True, exist_ok=True)
        paths = [folder / f"{self.name}.{suffix}" for suffix in texts]
        for path, content in zip(paths, texts.values(), strict=True):
            path.write_text(content, encoding="utf-8")
        return paths


def text(cell: Cell) -> str:
    """A cell as it is shown."""
    match cell:
        case Spread(mean, None):
            return f"{mean:.4f}"
        case Spread(mean, sd):
            return f"{mean:.4f} ± {sd:.4f}"
        case Interval(mean, low, high):
            return f"{mean:+.4f} [{low:+.4f}, {high:+.4f}]"
        case float():
            return f"{cell:.3g}" if cell < 100 else f"{cell:.0f}"
        case _:
            return str(cell)


def _parts(cell: Cell) -> tuple[str, ...]:
    return {Spread: ("mean", "sd"), Interval: ("", "low", "high")}.get(type(cell), ("",))


def _values(cell: Cell, width: int) -> list[str]:
    values = cell if isinstance(cell, tuple) else (cell,)
    texts = ["" if value in (None, NONE) else str(value) for value in values]
    return texts + [""] * (width - len(texts))


def _latex(text: str) -> str:
    escaped = re.sub(r"([&%$#_{}])", r"\\\1", text.replace("\\", "/").replace("`", ""))
    for sign, written in SIGNS.items():
        escaped = escaped.replace(sign, written)
    return re.sub(r"(?<![\w.])-(?=\d)", "$-$", escaped)
