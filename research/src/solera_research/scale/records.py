"""Records of measured points, without paths and host names."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from solera.core.frozen import Frozen
from solera.runs.environment import Code
from solera.study.records import Store, TableRow
from solera_research.scale.points import Point


class Seconds(Frozen):
    """Where the time of a run went."""

    wall: float
    train: float = Field(description="of a round, with the server: the median")
    server: float = Field(description="of a round: the median")
    training: float = Field(description="of all rounds")
    validation: float = Field(description="of all validations")
    test: float = Field(description="to rank the test items of all users")

    @property
    def rest(self) -> float:
        """Start of Python, loading, splitting, estimating, and writing the model."""
        return max(0.0, self.wall - self.training - self.validation - self.test)


class Planned(Frozen):
    """What `solera train --plan` said."""

    bytes: int
    seconds: float | None = Field(description="training, validation and test; None for closed forms")


class World(Frozen):
    """The data as they were loaded, and what popularity reaches on them."""

    users: int
    items: int = Field(description="that occur; fewer than asked for if there are few users")
    interactions: int
    training_items: float = Field(description="of a user, on average")
    popularity: float = Field(description="NDCG@10 of the popularity baseline on test items")


class ScaleRecord(TableRow):
    """One measured point."""

    format: Literal[1] = 1
    point: Point
    world: World
    seconds: Seconds
    validated: int = Field(description="users ranked in all validations together")
    tested: int
    peak_bytes: int = Field(description="of the largest process")
    peak_of_all: int = Field(description="of all processes together, with the one that starts the ranks")
    bytes_up: float = Field(description="of a client in a round")
    bytes_down: float
    kept_bytes: int = Field(description="the clients' state on disk")
    embedding_size: int = Field(description="1 for methods without one")
    ndcg: float = Field(description="NDCG@10 of the test that refreshes nothing, full ranking")
    plan: Planned | None = Field(
        default=None, description="None for several ranks, whose shares it does not know"
    )
    command: str
    environment: dict[str, Any]
    code: Code

    @property
    def name(self) -> str:
        """That of the point."""
        return self.point.name

    @property
    def clients_per_second(self) -> float:
        """Clients that are trained in a second."""
        return self.point.clients / self.seconds.train


def read_all(table: Path) -> list[ScaleRecord]:
    """All records of a table: methods in order, small points first."""
    found = Store(table, ScaleRecord).all()
    return sorted(found, key=lambda each: (each.point.label, size_of(each.point)))


def size_of(point: Point) -> tuple[int, ...]:
    """The order of points by size."""
    return (point.users * point.items, point.users, point.ranks, point.threads)
