"""Files in the form of MovieLens latest and 32M, and a Letterboxd export of films of 2015 to 2024.

Titles and years are as each of the two writes them. People, ratings and ids are invented.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import NamedTuple

import numpy as np
from letterboxd_export import DIARY, FILM, zipped

# Letterboxd's title and year, then MovieLens' title where it is another than "TITLE (YEAR)".
_FILMS = """
Star Wars: The Force Awakens|2015|Star Wars: Episode VII - The Force Awakens (2015)
Mad Max: Fury Road|2015
The Lobster|2015
Room|2015
Spotlight|2015
The Big Short|2015|Big Short, The (2015)
The Revenant|2015
Inside Out|2015
The Witch|2015
The Handmaiden|2016
Your Name.|2016
Arrival|2016
La La Land|2016
Moonlight|2016|Moonlight
Rogue One: A Star Wars Story|2016
Paterson|2016|Paterson
Get Out|2017
Call Me by Your Name|2017
Blade Runner 2049|2017
Three Billboards Outside Ebbing, Missouri|2017
Phantom Thread|2017
Paddington 2|2017
Coco|2017
Hereditary|2018
Roma|2018
Shoplifters|2018
The Favourite|2018|The Favourite
Spider-Man: Into the Spider-Verse|2018
Black Panther|2018|Black Panther (2017)
Avengers: Infinity War|2018|Avengers: Infinity War - Part I (2018)
Mission: Impossible – Fallout|2018|Mission: Impossible - Fallout (2018)
Parasite|2019
Portrait of a Lady on Fire|2019
Little Women|2019
Knives Out|2019
Marriage Story|2019
Once Upon a Time… in Hollywood|2019|Once Upon a Time in Hollywood (2019)
1917|2019
Joker|2019
Midsommar|2019
Soul|2020
Nomadland|2020
Another Round|2020
Dune|2021
Drive My Car|2021
Petite Maman|2021|Petite maman (2021)
The Power of the Dog|2021
The French Dispatch|2021|The French Dispatch (2020)
Everything Everywhere All at Once|2022
The Banshees of Inisherin|2022
TÁR|2022
Glass Onion|2022|Glass Onion: A Knives Out Mystery (2022)
Oppenheimer|2023
Barbie|2023
Past Lives|2023
Anatomy of a Fall|2023
Killers of the Flower Moon|2023|Killers of the Flower Moon
Anora|2024
Dune: Part Two|2024
The Substance|2024
"""
_OTHERS = (  # namesakes, and what else MovieLens has
    *("Parasite (1982)", "Inside Out (2011)", "Joker (2012)", "Get Out (2010)", "Coco (2016)", "Dune (1984)"),
    *("Little Women (1994)", "Spotlight (2009)", "Arrival, The (1996)", "Rock, The (1996)", "Heat (1995)"),
    *("Postman, The (Postino, Il) (1994)", "Avengers: Infinity War - Part II (2019)", "Stalker (1979)"),
)
USERS = 120


class Film(NamedTuple):
    """A film as Letterboxd knows it, and its title at MovieLens."""

    name: str
    year: int
    movielens: str


def _film(line: str) -> Film:
    name, year, *other = line.split("|")
    return Film(name, int(year), other[0] if other else f"{name} ({year})")


FILMS = [_film(line) for line in _FILMS.strip().splitlines()]


def write_movielens(folder: Path) -> Path:
    """ratings.csv, movies.csv and links.csv as MovieLens publishes them."""
    folder.mkdir(parents=True)
    titles = [*(film.movielens for film in FILMS), *_OTHERS]
    draw = np.random.default_rng(5)
    tables: dict[str, list[list[object]]] = {
        "movies.csv": [["movieId", "title", "genres"]],
        "links.csv": [["movieId", "imdbId", "tmdbId"]],
        "ratings.csv": [["userId", "movieId", "rating", "timestamp"]],
    }
    for row, title in enumerate(titles):
        genres = "(no genres listed)" if row % 9 == 0 else ("Comedy|Drama", "Horror", "Sci-Fi")[row % 3]
        tables["movies.csv"].append([10 + row, title, genres])
        tables["links.csv"].append([10 + row, f"{100_000 + row:07}", "" if row % 20 == 19 else 500 + row])
    for user in range(1, USERS + 1):
        taste = user % 3  # of films whose place has this rest
        chosen = [row for row in range(len(titles)) if draw.random() < (0.6 if row % 3 == taste else 0.1)]
        for row in chosen:
            rating = draw.integers(1, 11) / 2
            time = 1_500_000_000 + int(draw.integers(10**8))
            tables["ratings.csv"].append([user, 10 + row, rating, time])
    for name, rows in tables.items():
        with (folder / name).open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerows(rows)
    return folder


def write_letterboxd(path: Path) -> Path:
    """A zip whose owner logged all films in one evening, rated most, and keeps a short diary."""
    rows = [f"{_quoted(film.name)},{film.year},https://boxd.it/{n}" for n, film in enumerate(FILMS)]
    files = {
        "watched.csv": "\n".join([FILM, *(f"2024-12-{1 + n % 2:02},{row}" for n, row in enumerate(rows))]),
        "ratings.csv": "\n".join(
            [
                f"{FILM},Rating",
                *(f"2024-12-02,{row},{(4, 3.5, 5, 2)[n % 4]}" for n, row in enumerate(rows[:50])),
            ]
        ),
        "diary.csv": "\n".join(
            [DIARY, *(f"2024-12-0{n},{row},4,,,2024-12-0{n}" for n, row in enumerate(rows[-3:], 3))]
        ),
        "likes/films.csv": "\n".join([FILM, *(f"2024-12-02,{row}" for row in rows[::9])]),
        "watchlist.csv": f"{FILM}\n2024-12-02,Stalker,1979,https://boxd.it/w\n",
    }
    return zipped(path, {name: f"{text}\n" for name, text in files.items()})


def _quoted(name: str) -> str:
    return f'"{name}"' if "," in name else name
