"""A catalogue of invented films, and invented people who watch them."""

from __future__ import annotations

import numpy as np

from solera.data.interactions import Interactions
from solera.device.bundle import Item
from solera.device.catalogue import split_year

PEOPLE, WATCHED = 300, (12, 32)
FILMS = {
    "Adventure": (
        "Amber Caravan, The (1958)", "Beyond the Ninth Dune (1967)", "Cartographer's Daughter, The (1984)",
        "Ice Ledger, The (1991)", "Monsoon Relay (1976)", "Rope Bridge at Dawn (2003)",
        "Seven Lanterns East (1962)", "Tin Compass, The (1999)", "Valley Without Echo (2011)",
        "Wind Harvesters, The (2018)",
    ),
    "Animation": (
        "Badger and the Borrowed Moon, The (1989)", "Clockwork Sparrow (1996)", "Little Kiln, The (2004)",
        "Otter's Almanac, The (2012)", "Paper Whale, The (1978)", "Quilt of Many Weathers (2016)",
        "Snail Express, The (2001)", "Thimble Town (1985)", "Umbrella Orchestra, The (2009)",
        "Weathervane and I, The (2020)",
    ),
    "Comedy": (
        "Aunt Ottilie Buys a Boat (1954)", "Five Grooms and a Goat (1987)", "Kind Regards, Gerald (2006)",
        "Lodger's Trombone, The (1961)", "Marmalade Inspector, The (1993)", "No Refunds on Tuesdays (1998)",
        "Pudding Trials, The (1972)", "Reunion of Strangers (2014)", "Two Left Feet, One Right (1982)",
        "Unpaid Intern of Monte Grappa, The (2019)",
    ),
    "Crime": (
        "Alibi for a Locksmith (1949)", "Borrowed Badge, The (1974)", "Cold Ink (1995)",
        "Eleven Keys to Harbour Street (1959)", "Glass Witness, The (1983)", "Ledger of Small Debts (2005)",
        "Night Desk (1966)", "Quiet Safecracker, The (2010)", "Salt on the Stairs (1997)",
        "Third Stenographer, The (1947)",
    ),
    "Drama": (
        "A Winter for Magdalena (1969)", "Bakery on Lind Street, The (2002)", "Evening Ferry, The (1956)",
        "House with the Green Clock, The (1979)", "Letters from the Orchard (1990)",
        "Les Heures du moulin (Hours of the Mill) (1964)", "Piano Mover's Son, The (2008)",
        "Sister of the Lighthouse (1986)", "Slow Harvest (2015)", "Where the Tram Ends (1973)",
    ),
    "Horror": (
        "Attic Tenant, The (1977)", "Below the Chapel Pond (1988)", "Candle Count, The (1968)",
        "Do Not Wake the Miller (2013)", "Eighth Doll, The (1981)", "Hollow Choir, The (2007)",
        "Root Cellar (1994)", "Scarecrow Season (2000)", "Teeth of Winter (1971)", "Wallpaper, The (2017)",
    ),
    "Romance": (
        "Accidental Waltz, An (1952)", "Blue Thermos, The (2010)", "Café at Platform Four (1963)",
        "Dictionary for Two (1999)", "Ferris Wheel in the Rain (1985)", "Kite Weather (1994)",
        "Last Dance at the Alhambra Garage (1975)", "Next Window, Please (2006)", "Postmistress, The (1957)",
        "Tangerine Summer (2019)",
    ),
    "Science Fiction": (
        "Archive of Tomorrow (1982)", "Borrowed Gravity (2014)", "Colony Nine Does Not Answer (1965)",
        "Glass Horizon (1996)", "Half-Life of Juno (a.k.a. Juno's Orbit) (2003)", "Moonquake (1958)",
        "Quiet Between Stars, The (2021)", "Robot Gardener, The (1979)", "Second Sun (1990)",
        "Tidal Engine (2009)",
    ),
}  # fmt: skip
_ALSO = {  # a second genre
    "Paper Whale, The (1978)": "Adventure",
    "Marmalade Inspector, The (1993)": "Crime",
    "Robot Gardener, The (1979)": "Comedy",
    "Evening Ferry, The (1956)": "Romance",
    "Colony Nine Does Not Answer (1965)": "Horror",
    "Dictionary for Two (1999)": "Comedy",
}


def films() -> list[Item]:
    """All films, with ids f1, f2, …"""
    listed = [(title, genre) for genre, titles in FILMS.items() for title in titles]
    return [
        Item(f"f{number}", title, split_year(title)[1], tuple(filter(None, (genre, _ALSO.get(title)))))
        for number, (title, genre) in enumerate(listed, start=1)
    ]


def watching(seed: int = 7) -> Interactions:
    """The histories of invented people, each of whom likes two genres and is curious sometimes."""
    draw, items = np.random.default_rng(seed), films()
    names, taste = list(FILMS), np.array([list(FILMS).index(item.genres[0]) for item in items])
    users: list[str] = []
    watched: list[str] = []
    for person in range(PEOPLE):
        first, second = draw.choice(len(names), 2, replace=False)
        appeal = 0.15 + 4.0 * (taste == first) + 2.0 * (taste == second) + draw.gamma(0.3, 0.5, len(items))
        count = int(draw.integers(*WATCHED))
        for film in draw.choice(len(items), count, replace=False, p=appeal / appeal.sum()).tolist():
            users.append(f"p{person}")
            watched.append(items[film].id)
    titles = {item.id: item.title for item in items}
    return Interactions.from_columns("invented films", users, watched, np.arange(len(users)), titles)
