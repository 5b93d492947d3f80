"""A Letterboxd export with the files and columns of a real one."""

from __future__ import annotations

import zipfile
from pathlib import Path

FILM = "Date,Name,Year,Letterboxd URI"
DIARY = f"{FILM},Rating,Rewatch,Tags,Watched Date"
FILES = {
    "profile.csv": "Date Joined,Username,Given Name,Family Name,Email Address,Location,Website,Bio,Pronoun,"
    "Favorite Films\n2020-01-01,ann,Ann,,ann@example.org,,,,They / their,\n",
    "watched.csv": f"{FILM}\n"
    "2023-01-01,Film 1,1961,https://boxd.it/1\n"  # not rated, no heart
    "2023-01-02,Film 2,1962,https://boxd.it/2\n"  # rated 4
    "2023-01-03,Film 3,1963,https://boxd.it/3\n"  # rated 0.5
    "2023-01-04,Film 4,1964,https://boxd.it/4\n"  # rated 2, with a heart
    "2023-01-05,Fim 5,1965,https://boxd.it/5\n"  # a near miss
    "2023-01-06,Oppenheimer,2023,https://boxd.it/6\n"  # not in the catalogue
    "soon,Film 6,1966,https://boxd.it/7\n",  # a bad row
    "ratings.csv": f"{FILM},Rating\n"
    "2023-02-02,Film 2,1962,https://boxd.it/2,4\n"
    "2023-02-03,Film 3,1963,https://boxd.it/3,0.5\n"
    "2023-02-04,Film 4,1964,https://boxd.it/4,2\n",
    "diary.csv": f"{DIARY}\n"
    '2023-03-02,Film 2,1962,https://boxd.it/d1,3,,"cinema, friends",2023-03-01\n'
    "2023-04-02,Film 2,1962,https://boxd.it/d2,4,Yes,,2023-04-01\n",
    "reviews.csv": f"{FILM},Rating,Rewatch,Review,Tags,Watched Date\n"
    '2023-03-02,Film 2,1962,https://boxd.it/d1,4,,"Good,\nvery good",,2023-03-01\n',
    "watchlist.csv": f"{FILM}\n2024-01-01,Film 9,1969,https://boxd.it/9\n",
    "comments.csv": "Date,Content,Comment\n",
    "likes/films.csv": f"{FILM}\n2023-01-04,Film 4,1964,https://boxd.it/4\n",
    "likes/reviews.csv": "Date,Review\n",
    "lists/best.csv": "Letterboxd list export v7\nDate,Name,Tags,URL,Description\n2024-01-01,Best,,u,\n",
    "deleted/diary.csv": f"{DIARY}\n2021-01-01,Film 8,1968,https://boxd.it/8,5,,,2021-01-01\n",
    "orphaned/diary.csv": f"{DIARY}\n",
}


def zipped(path: Path, files: dict[str, str] = FILES, inside: str = "") -> Path:
    """The export as a zip; `inside` is a folder that holds everything."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(inside + name, text)
    return path
