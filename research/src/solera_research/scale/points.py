"""The points that are measured: methods, sizes and ranks."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from pydantic import Field

from solera.core.errors import ConfigError
from solera.core.frozen import Frozen
from solera.methods import find

INTERACTIONS = 20  # of a user, on average
SEED = 0


class Point(Frozen):
    """One training run. Every process has `threads` threads."""

    method: str
    options: dict[str, int] = Field(default_factory=dict)
    solved: bool = False  # in one round, with all clients
    users: int
    items: int
    clients: int  # in a round
    rounds: int
    ranks: int = 1  # 1: one process, without --workers
    threads: int
    evaluate_users: int
    evaluate_every: int

    @property
    def label(self) -> str:
        """The method with its options."""
        return " ".join([self.method, *(f"{key}={value}" for key, value in self.options.items())])

    @property
    def name(self) -> str:
        """The name of the record, without its ending."""
        return f"{self.label.replace(' ', '-')}-{self.size}"

    @property
    def size(self) -> str:
        """Users, items, ranks and threads in short."""
        return f"u{short(self.users)}-i{short(self.items)}-r{self.ranks}x{self.threads}"

    @property
    def cores(self) -> int:
        """Cores that the run may use."""
        return self.ranks * self.threads

    def missing_option(self) -> str | None:
        """A sentence about an option that this version of the method does not have."""
        known = type(find(self.method).config).model_fields
        for option in self.options:
            if option not in known:
                return f"{self.name} is skipped: {self.method} has no option {option}"
        return None

    def arguments(self, data: str, out: str) -> list[str]:
        """What follows `solera`."""
        given = ["train", self.method, "--data", data, "--out", out, "--json"]
        options = dict(self.options)
        if not self.solved:
            given += ["--rounds", str(self.rounds)]
            options["clients_per_round"] = self.clients
        for key, value in options.items():
            given += ["-o", f"{key}={value}"]
        given += ["--evaluate-users", str(self.evaluate_users), "--evaluate-every", str(self.evaluate_every)]
        given += ["--no-both-tests", "--threads", str(self.threads)]
        return given + (["--workers", str(self.ranks)] if self.ranks > 1 else [])


class Sizes(Frozen):
    """The sizes of a set of measurements. All but one axis at a time have their middle value."""

    users: tuple[int, int, int]
    items: tuple[int, int]
    ranks: int
    clients: int  # most in a round
    rounds: int
    evaluate_users: int
    neighbours: int


FULL = Sizes(
    users=(10_000, 100_000, 1_000_000),
    items=(10_000, 100_000),
    ranks=2,
    clients=10_000,
    rounds=10,
    evaluate_users=2_000,
    neighbours=100,
)
QUICK = Sizes(
    users=(150, 300, 600), items=(400, 800), ranks=2, clients=100, rounds=2, evaluate_users=50, neighbours=10
)
TRAINED = ("fedmf", "pfedrec", "fedrap", "fedhist")


def points(sizes: Sizes) -> list[Point]:
    """All points: methods after one another, and of each the small ones first."""
    return [point for method in (*TRAINED, "fedease") for point in _of_method(method, sizes)]


def chosen(all_points: Collection[Point], only: Collection[str]) -> list[Point]:
    """The points whose name contains one of the given words, or all without a word."""
    found = [point for point in all_points if not only or any(word in point.name for word in only)]
    if not found:
        names = ", ".join(point.name for point in all_points)
        raise ConfigError(f"no point is called {' or '.join(only)}", f"the points are {names}")
    return found


def _of_method(method: str, sizes: Sizes) -> Iterator[Point]:
    solved = method == "fedease"
    few, some, many = sizes.users
    less, more = sizes.items
    # One process with two threads along users and items; one thread each to compare numbers of ranks.
    shapes = [(few, more, 1, 2), (some, less, 1, 2), (some, more, 1, 2), (some, more, 1, 1)]
    shapes += [] if solved else [(some, more, sizes.ranks, 1)]  # the server takes the time of a closed form
    for users, items, ranks, threads in (*shapes, (many, more, 1, 2)):
        yield Point(
            method=method,
            options={"neighbours": sizes.neighbours} if solved else {},
            solved=solved,
            users=users,
            items=items,
            clients=users if solved else min(sizes.clients, users // 5),
            rounds=1 if solved else sizes.rounds,
            ranks=ranks,
            threads=threads,
            evaluate_users=sizes.evaluate_users,
            evaluate_every=1 if solved else max(1, sizes.rounds // 2),
        )


def short(number: int) -> str:
    """1e5 of 100,000; other numbers as they are."""
    text = str(number)
    zeros = len(text) - len(text.rstrip("0"))
    return f"{text[: len(text) - zeros]}e{zeros}" if zeros > 2 else text
