"""Check that README, CONTRIBUTING, SECURITY and the pages in docs read as plain technical English.

python tools/prose.py             print file:line of long sentences and of unwanted phrases; exit 1 if any
python tools/prose.py --shrink    lower the allowances in tools/prose.json to what their pages need today

Code, tables and generated blocks are not checked. A page over the bounds has an allowance in
tools/prose.json. Allowances are lowered when a page is rewritten. Never raise them.
"""

from __future__ import annotations

import json
import re
import sys
from math import ceil
from pathlib import Path

ROOT = Path(__file__).parent.parent
BOUNDS = {"mean": 16, "longest": 32}  # words in a sentence: mean of a page, rounded up, and the most in one
GENERATED = (
    "docs/index.md",
    "docs/reference/commands/",
    "docs/results/papers/",
    "docs/federation/threat-model.md",
)
PHRASES = (  # each was in our text, and readers did not understand it
    *("from nothing", "what to meet next", "comes further", "is none", "uses nobody", "of no method"),
    *("person's minute", "needs nothing but itself", "hears of", "no record fills", "those count that"),
    *("a person may go", "by its patience", "anybody's coin", "not to be had", "in earnest", "step size"),
    *("brings gigabytes", "what came of it", "goes on and ends", "held-back", "kept back"),
)
PHRASE = re.compile(rf"\b(?:{'|'.join(PHRASES)})\b".replace(" ", r"\s+"), re.IGNORECASE)
UNCHECKED = re.compile(
    r"^(?P<fence>```+|~~~+).*?^(?P=fence)$"  # code
    r"|<!--(?:(?!-->).)*-->(?:(?!<!--).)*<!-- end -->"  # generated blocks
    r"|<!--.*?-->|<[a-z/][^>\n]*>"  # comments, HTML
    r"|^ *\|[^\n]*|^:::[^\n]*(?:\n {4}[^\n]*)*",  # tables, docstrings that mkdocstrings puts in
    re.DOTALL | re.MULTILINE,
)
INLINE_CODE = re.compile(r"(`+)(?:(?!\1|\n\n).)+\1", re.DOTALL)
LINK = re.compile(r"!?\[([^\[\]]*)\]\([^()\s]*\)")
HEADING = re.compile(r"^#.*$", re.MULTILINE)
ABBREVIATION = re.compile(r"\b(al|e\.g|i\.e|vs|etc)\.")
BREAK = re.compile(r"\n\s*\n|\n(?=\s*(?:[-*+]|\d+\.)\s)|(?<=[.!?])[)*\"”_]*\s+(?=[^a-z\s])")
WORD = re.compile(r"\w[\w'’.,@/+-]*")


def _line_ends(match: re.Match[str]) -> str:
    return "\n" * match[0].count("\n")


def prose(text: str) -> str:
    """A page without what is not checked, with the same line numbers; inline code becomes one word."""
    text = INLINE_CODE.sub(lambda code: "Code" + _line_ends(code), UNCHECKED.sub(_line_ends, text))
    return ABBREVIATION.sub(r"\1", LINK.sub(r"\1", text))


def sentences(text: str) -> list[tuple[int, int, str]]:
    """Line, number of words and text of every sentence of a page, without headings."""
    readable, found, start = HEADING.sub("", prose(text)), [], 0
    for end, after in [*(each.span() for each in BREAK.finditer(readable)), (len(readable),) * 2]:
        part = readable[start:end]
        words = len(WORD.findall(part))
        if words:
            line = readable.count("\n", 0, end - len(part.lstrip())) + 1
            found.append((line, words, " ".join(part.split())))
        start = after
    return found


def needs(text: str) -> dict[str, int]:
    """The bounds that a page keeps to."""
    lengths = [words for _, words, _ in sentences(text)] or [0]
    return {"mean": ceil(sum(lengths) / len(lengths)), "longest": max(lengths)}


def lowered(allowed: dict[str, int], text: str) -> dict[str, int]:
    """An allowance without what its page no longer needs."""
    needed = needs(text)
    return {key: min(most, needed[key]) for key, most in allowed.items() if needed[key] > BOUNDS[key]}


def problems(name: str, text: str, allowed: dict[str, int]) -> list[str]:
    """What is wrong with a page, each with file:line."""
    readable, limits, mean = prose(text), BOUNDS | allowed, needs(text)["mean"]
    found = []
    for each in PHRASE.finditer(readable):
        line = readable.count("\n", 0, each.start()) + 1
        found.append(f"{name}:{line}: do not write {' '.join(each[0].split())!r}")
    for line, words, sentence in sentences(text):
        if words > limits["longest"]:
            found.append(f"{name}:{line}: {words} words, at most {limits['longest']}: {sentence[:60]}…")
    if mean > limits["mean"]:
        found.append(f"{name}:1: sentences have {mean} words on average, at most {limits['mean']}")
    if lowered(allowed, text) != allowed:
        found.append(f"{name}:1: needs less than tools/prose.json allows: python tools/prose.py --shrink")
    return found


def main(arguments: list[str], root: Path = ROOT) -> int:
    """Check all pages, or lower the allowances; return the exit code."""
    top = (root / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md"))
    pages = {str(path.relative_to(root)): path for path in (*top, *sorted((root / "docs").rglob("*.md")))}
    texts = {
        name: path.read_text(encoding="utf-8")
        for name, path in pages.items()
        if not name.startswith(GENERATED)
    }
    file = root / "tools" / "prose.json"
    allowances: dict[str, dict[str, int]] = json.loads(file.read_text(encoding="utf-8"))
    if "--shrink" in arguments:
        kept = {name: lowered(most, texts[name]) for name, most in allowances.items() if name in texts}
        file.write_text(json.dumps({name: most for name, most in kept.items() if most}, indent=2) + "\n")
        return 0
    found = [f"tools/prose.json:1: there is no {name}" for name in sorted(allowances.keys() - texts.keys())]
    for name, text in texts.items():
        found += problems(name, text, allowances.get(name, {}))
    print("\n".join(found) or "prose: no problems")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
