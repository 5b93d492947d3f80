"""Find items of the catalogue by the titles in people's exports.

"The Matrix", "Matrix, The (1999)" and "the matrix!" are one title. Of "Seven (a.k.a. Se7en) (1995)", each
part is a title. Where both sides give a year, they may be one apart: festivals and cinemas disagree.
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Mapping
from difflib import get_close_matches
from functools import cached_property
from typing import Any

from solera.core.errors import DataError
from solera.device.bundle import Item

_ARTICLES = "the|a|an|la|le|les|l'|il|lo|gli|el|los|las|der|die|das|den|det|un|une|uno|una|o|os|as"
_LAST_ARTICLE = re.compile(rf"^(.*), ({_ARTICLES})$", re.IGNORECASE)
_YEAR = re.compile(r"\s*\((\d{4})\)\s*$")
_ALSO = re.compile(r"^(a\.?\s?k\.?\s?a\.?|aka|or)\s+", re.IGNORECASE)
_LETTERS = str.maketrans({"ø": "o", "ł": "l", "đ": "d", "æ": "ae", "œ": "oe", "ı": "i", "&": " and "})


def plain(title: str) -> str:
    """A title without case, accents and punctuation, its article in front."""
    text = unicodedata.normalize("NFKD", _article_first(title.strip()).casefold()).translate(_LETTERS)
    text = re.sub(r"['’`´]", "", "".join(c for c in text if not unicodedata.combining(c)))
    words = "".join(c if c.isalnum() else " " for c in text).split()
    return " ".join(words) or title.strip().casefold()


def natural(title: str) -> str:
    """A title with its article in front, in every part: "Postman, The (Postino, Il) (1994)"."""
    return re.sub(r"[^()]*[^()\s]", lambda part: _article_first(part[0]), title)


def _article_first(text: str) -> str:
    moved = _LAST_ARTICLE.match(text)
    return moved[2] + ("" if moved[2].endswith("'") else " ") + moved[1] if moved else text


def split_year(title: str) -> tuple[str, int | None]:
    """A title and the year that stands in parentheses after it."""
    found = _YEAR.search(title)
    return (title[: found.start()], int(found[1])) if found else (title, None)


def titles_in(title: str) -> list[str]:
    """All plain titles that a catalogue's entry gives: the whole, without parentheses, and within them."""
    name, _ = split_year(title)
    inner = [_ALSO.sub("", part) for part in re.findall(r"\(([^()]*)\)", name)]
    outer = re.sub(r"\s*\([^()]*\)", "", name)
    return list(dict.fromkeys(plain(each) for each in (name, outer, *inner) if each.strip()))


def plain_id(kind: str, id_: str) -> str:
    """An id elsewhere as its kind is compared: tt0133093, 0133093 and 133093 are one film of IMDb."""
    text = id_.strip().lower()
    if kind == "imdb":
        return text.removeprefix("tt").lstrip("0")
    return re.sub(r"[\s-]", "", text) if kind == "isbn" else text


def fits(item: Item, year: int | None) -> bool:
    """Whether an item may be of a year: years may be one apart, and an unknown year fits all."""
    return item.year is None or year is None or abs(item.year - year) <= 1


class Catalogue:
    """The items of a bundle, by id, number and title."""

    def __init__(self, items: list[Item]) -> None:
        self.items = items

    @cached_property
    def number(self) -> dict[str, int]:
        """The row of every id."""
        return {item.id: row for row, item in enumerate(self.items)}

    @cached_property
    def _elsewhere(self) -> dict[tuple[str, str], Item]:
        """Items by their ids elsewhere; an id that two items have is nobody's."""
        found: dict[tuple[str, str], list[Item]] = defaultdict(list)
        for item in self.items:
            for kind, id_ in item.ids.items():
                found[kind, plain_id(kind, id_)].append(item)
        return {key: items[0] for key, items in found.items() if len(items) == 1}

    def by_ids(self, ids: Mapping[Any, str]) -> Item | None:
        """The item that has the first of these ids elsewhere that any item has."""
        found = (self._elsewhere.get((kind, plain_id(kind, id_))) for kind, id_ in ids.items())
        return next((item for item in found if item), None)

    @cached_property
    def _by_title(self) -> dict[str, list[Item]]:
        found: dict[str, list[Item]] = defaultdict(list)
        for item in self.items:
            for title in titles_in(item.title):
                found[title].append(item)
        return dict(found)

    def title(self, id_: str) -> str:
        """The title of an item, or its id where the catalogue has lost it."""
        row = self.number.get(id_)
        return id_ if row is None else self.items[row].title

    def match(self, title: str, year: int | None = None) -> Item | None:
        """The item of a title, if there is one and no doubt which."""
        if year is None:
            title, year = split_year(title)
        found = self._by_title.get(plain(title), [])
        if year is not None:
            found = [item for item in found if fits(item, year)]
            found = [item for item in found if item.year == year] or found
        distinct = {item.year for item in found}
        return found[0] if len(distinct) == 1 else None

    @cached_property
    def _by_year(self) -> dict[int | None, list[str]]:
        found: dict[int | None, dict[str, None]] = defaultdict(dict)
        for title, items in self._by_title.items():
            for item in items:
                found[item.year][title] = None
        return {year: list(titles) for year, titles in found.items()}

    def rivals(self, title: str, year: int | None = None) -> list[str]:
        """The plain titles that a title is compared with: those of its year, or all if it has none."""
        if year is None:
            title, year = split_year(title)
        if year is None:
            return list(self._by_title)
        of_year = [name for each in (year, year - 1, year + 1, None) for name in self._by_year.get(each, [])]
        same = plain(title)
        return [same, *of_year] if same in self._by_title else of_year

    def near(self, title: str, year: int | None = None, count: int = 3) -> list[Item]:
        """Items with similar titles, as suggestions; of a title with a year, those of about that year."""
        name, year = split_year(title) if year is None else (split_year(title)[0], year)
        keys = get_close_matches(plain(name), self.rivals(title, year), n=count, cutoff=0.75)
        found = {item.id: item for key in keys for item in self._by_title[key]}
        return sorted(found.values(), key=lambda item: not fits(item, year))[:count]

    def find(self, text: str) -> Item:
        """The item of an id or a title; an unknown one is an error with what may have been meant."""
        row, (kind, _, id_) = self.number.get(text), text.partition(":")
        item = (self.by_ids({kind: id_}) or self.match(text)) if row is None else self.items[row]
        if item is None:
            near = "; ".join(item.title for item in self.near(text) or self.near(split_year(text)[0]))
            raise DataError(
                f"the catalogue has no item {text!r}",
                f"did you mean: {near}" if near else "give an id or a title",
            )
        return item
