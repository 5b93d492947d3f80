"""Draw the pictures of the explanations: docs/images/explained-*.svg, each on a light card of its own.

python tools/docs/make_pictures.py            draw them anew
python tools/docs/make_pictures.py --check    change nothing; exit 1 and name those that are stale
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from html import escape
from pathlib import Path

STYLE = """
  .card { fill: #fffdf8; stroke: #d8d2c4 } text { fill: #24221d }
  .dim { fill: #6a655a; font-size: 12px } .head { font-weight: 600; font-size: 15px }
  .number { fill: #ffffff; font-weight: 700 } .dot { fill: #b34700 }
  .shared { fill: #d9e8f8; stroke: #2f6fb3 } .own { fill: #d8f0dd; stroke: #1a7f37 }
  .room { fill: #f3efe6; stroke: #8a8373 } .plain { fill: #ffffff; stroke: #8a8373 }
  .line { stroke: #6a655a; stroke-width: 1.8; fill: none } .tip { fill: #6a655a }
  .sent { stroke: #b34700; stroke-width: 2.2; fill: none } .senttip { fill: #b34700 }
"""


class Picture:
    """Boxes, texts and arrows on a card."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self.size, self.title, self.parts = (width, height), title, [""]

    def box(self, x: float, y: float, w: float, h: float, kind: str = "plain") -> None:
        """A rectangle."""
        self.parts.append(f'<rect class="{kind}" x="{x}" y="{y}" width="{w}" height="{h}" rx="5"/>')

    def text(self, x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> None:
        """One line of text."""
        self.parts.append(
            f'<text class="{kind}" x="{x}" y="{y}" text-anchor="{anchor}">{escape(words)}</text>'
        )

    def named(self, x: float, y: float, w: float, h: float, kind: str, *lines: str) -> None:
        """A box with lines of text in its middle, the first of them larger."""
        self.box(x, y, w, h, kind)
        first = y + h / 2 + 5 - 8.5 * (len(lines) - 1)
        for place, line in enumerate(lines):
            self.text(x + w / 2, first + 17 * place, line, "dim" if place else "", "middle")

    def table(self, x: float, y: float, rows: int, columns: int, kind: str, *, cell: int) -> None:
        """Rows of numbers."""
        for row in range(rows):
            for column in range(columns):
                place = f'x="{x + column * cell}" y="{y + row * cell}"'
                self.parts.append(f'<rect class="{kind}" {place} width="{cell}" height="{cell}"/>')

    def arrow(self, x1: float, y1: float, x2: float, y2: float, sent: bool = False) -> None:
        """A straight arrow."""
        length = ((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5
        a, b = (x2 - x1) / length, (y2 - y1) / length
        left, right = ((x2 - 9 * a + s * 4.5 * b, y2 - 9 * b - s * 4.5 * a) for s in (1, -1))
        corners = " ".join(f"{px:.1f},{py:.1f}" for px, py in ((x2, y2), left, right))
        line, tip = ("sent", "senttip") if sent else ("line", "tip")
        self.parts.append(f'<path class="{line}" d="M{x1} {y1}L{x2 - 7 * a:.1f} {y2 - 7 * b:.1f}"/>')
        self.parts.append(f'<polygon class="{tip}" points="{corners}"/>')

    def number(self, x: float, y: float, which: int) -> None:
        """One of the five choices."""
        self.parts.append(f'<circle class="dot" cx="{x}" cy="{y}" r="11"/>')
        self.text(x, y + 5, str(which), "number", "middle")

    def svg(self) -> str:
        """The file."""
        width, height = self.size
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
            f'font-family="system-ui, \'DejaVu Sans\', sans-serif" font-size="14" role="img">'
        )
        card = f'<rect class="card" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8"/>'
        body = "\n".join(self.parts)
        return f"{head}\n<title>{escape(self.title)}</title>\n<style>{STYLE}</style>\n{card}{body}\n</svg>\n"


def recommender() -> Picture:
    """A user vector against an item table."""
    p = Picture(
        760, 235, "A user's vector, multiplied with the vector of every item, gives a score for each."
    )
    p.text(40, 42, "one user", "head")
    p.table(40, 95, 1, 5, "own", cell=24)
    p.text(40, 145, "user vector: what this user likes", "dim")
    p.text(225, 115, "×", "head")
    p.text(300, 42, "all items", "head")
    p.table(300, 60, 6, 5, "shared", cell=24)
    p.text(300, 225, "item table: a row says what an item is like", "dim")
    p.arrow(440, 130, 520, 130)
    p.text(545, 42, "scores", "head")
    for row, (score, title) in enumerate(
        ((2.1, "Alien"), (-0.7, "Babe"), (1.4, "Brazil"), (0.2, "Fargo"), (-1.8, "Heat"), (0.9, "Persona"))
    ):
        p.text(585, 78 + row * 24, f"{score:+.1f}", "", "end")
        p.text(600, 78 + row * 24, title)
    return p


def one_round() -> Picture:
    """Server, client, and what passes between them, with the five choices in their places."""
    p = Picture(
        860,
        430,
        "One round: devices download the table, train it and upload changes; the server combines them.",
    )
    p.box(20, 20, 820, 110, "room")
    p.text(36, 44, "Server", "head")
    p.named(60, 58, 200, 56, "shared", "shared item table", "after the last round")
    p.named(600, 58, 200, 56, "shared", "next item table", "for the next round")
    p.named(350, 58, 160, 56, "plain", "aggregate", "combines the uploads")
    p.number(350, 58, 5)
    p.arrow(510, 86, 600, 86)
    p.box(20, 200, 820, 210, "room")
    p.text(250, 224, "One of many devices", "head")
    steps = (
        ("view", "personal item table"),
        ("scorer", "scores items"),
        ("loss", "rates scores"),
        ("update", "trains parameters"),
    )
    for x, which, (name, about) in zip((60, 250, 440, 630), (2, 1, 3, 4), steps, strict=True):
        p.named(x, 240, 150, 60, "plain", name, about)
        p.number(x, 240, which)
    for x in (210, 400, 590):
        p.arrow(x, 270, x + 40, 270)
    p.named(60, 340, 250, 54, "own", "personal parameters", "never uploaded")
    p.named(380, 340, 330, 54, "own", "history (positives) and negatives", "never uploaded")
    p.arrow(150, 340, 150, 300)
    p.arrow(515, 340, 515, 300)
    p.arrow(100, 114, 100, 240, sent=True)
    p.text(112, 170, "download: the item table", "dim")
    p.arrow(700, 240, 470, 114, sent=True)
    p.text(620, 165, "upload: changes of the", "dim")
    p.text(620, 181, "touched rows, nothing else", "dim")
    return p


def views() -> Picture:
    """Six ways to see the item table."""
    p = Picture(
        860, 250, "Six views of the item table, blue for what is shared, green for what is the client's own."
    )
    kinds: tuple[tuple[str, str, Sequence[tuple[int, str]]], ...] = (
        ("as it is", "FedMF", ((4, "shared"),)),
        ("tuned and kept", "PFedRec", ((4, "shared"), (4, "own"))),
        ("sum of two", "FedRAP", ((4, "shared"), (4, "own"))),
        ("plus low rank", "PFedCLR", ((4, "shared"), (1, "own"))),
        ("merged", "FedEM, by item", ((4, "shared"), (4, "own"))),
        ("mixed", "PLGC, by norm", ((4, "shared"), (4, "own"))),
    )
    signs = ("", "→", "+", "+", "ρᵢ", "λ")
    for place, (name, paper, tables) in enumerate(kinds):
        x = 24 + place * 139
        p.text(x, 40, name, "head")
        p.text(x, 60, paper, "dim")
        left = x
        for column, (width, kind) in enumerate(tables):
            if column:
                p.text(left + 9, 129, signs[place], "", "middle")
                left += 18
            p.table(left, 80, 8, width, kind, cell=11)
            left += width * 11
            if width == 1:
                p.text(left + 7, 129, "×", "", "middle")
                p.table(left + 15, 118, 1, 4, "own", cell=11)
    p.text(24, 205, "blue: shared, the same for everybody (FedEM's server makes one for each client)", "dim")
    p.text(24, 225, "green: on the client and nowhere else; →, what it becomes by training there", "dim")
    return p


def troubles() -> Picture:
    """User skew and dimensional collapse."""
    p = Picture(
        860,
        300,
        "Left: averaging pulls a user's training off its way. Right: few directions carry a whole table.",
    )
    p.text(30, 36, "User skew", "head")
    p.text(30, 56, "the user vector trained alone, and after every average", "dim")
    p.parts.append('<circle class="own" cx="60" cy="240" r="7"/>')
    p.text(46, 268, "start", "dim")
    p.parts.append('<circle class="own" cx="200" cy="92" r="7"/>')
    p.text(214, 92, "where own data leads", "dim")
    p.arrow(66, 233, 194, 99)
    for x1, y1, x2, y2 in ((68, 236, 140, 190), (150, 192, 225, 178), (235, 180, 320, 190)):
        p.arrow(x1, y1, x2, y2, sent=True)
    p.parts.append('<circle class="shared" cx="335" cy="192" r="7"/>')
    p.text(290, 224, "where it ends with shared rows", "dim")
    p.text(480, 36, "Dimensional collapse", "head")
    p.text(480, 56, "singular values of an item table, largest first", "dim")
    healthy = (92, 84, 80, 75, 70, 66, 61, 57)
    collapsed = (118, 52, 20, 9, 5, 3, 2, 1)
    for group, (values, name) in enumerate(((healthy, "all directions in use"), (collapsed, "collapsed"))):
        left = 490 + group * 185
        for place, value in enumerate(values):
            where = f'x="{left + place * 18}" y="{210 - value}" width="13" height="{value}"'
            p.parts.append(f'<rect class="{"own" if group else "shared"}" {where}/>')
        p.text(left, 234, name, "dim")
    p.text(480, 268, "users with few items leave most directions untrained,", "dim")
    p.text(480, 284, "and the average inherits that (sketch, not a measurement)", "dim")
    return p


# The rooms of the package: one may use those below it, and those to its left.
LAYERS = (
    (("api", "from Python"), ("cli", "commands, thin")),
    (("deploy", "over Flower"), ("service", "a device's page"), ("bench", "measures"), ("report", "pages")),
    (("device", "on one's own machine"), ("privacy", "attacks, masks")),
    (("runs", "train, keep, resume, recommend"), ("testing", "what every method must satisfy")),
    (("engine", "reference, block"), ("evaluate", "protocols, ranking"), ("baselines", "centralized")),
    (
        ("methods", "one file each"),
        ("data", "sets, splits"),
        ("dp", "clip, noise, ε"),
        ("coding", "fewer bytes"),
    ),
    (("core", "the five choices, leaves, contexts, uploads, randomness, errors"),),
)


def rooms() -> Picture:
    """The rooms in their layers."""
    p = Picture(860, 420, "Rooms of the package in layers; a room uses rooms below it and to its left alone.")
    for place, layer in enumerate(LAYERS):
        y, width = 20 + place * 55, 750 / len(layer)
        for column, (name, about) in enumerate(layer):
            kind = "shared" if name in ("core", "methods") else "room"
            p.named(80 + column * width, y, width - 10, 46, kind, name, about)
    p.arrow(40, 20, 40, 395)
    p.text(20, 412, "uses", "dim")
    return p


PICTURES = {
    "recommender": recommender,
    "round": one_round,
    "views": views,
    "troubles": troubles,
    "rooms": rooms,
}


def main(arguments: Sequence[str], root: Path) -> int:
    """Draw or check all pictures under `root`."""
    stale = False
    for name, draw in PICTURES.items():
        file, made = root / f"docs/images/explained-{name}.svg", draw().svg()
        if file.exists() and file.read_text("utf-8") == made:
            continue
        stale = True
        if "--check" in arguments:
            sys.stdout.write(f"stale: {file.relative_to(root)}\n")
        else:
            file.write_text(made, "utf-8")
    return int("--check" in arguments and stale)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], Path(__file__).parents[2]))
