"""The device's ledger: which federations its owner has agreed to, and every round it has been in.

An entry is on the disk before the message that it is about leaves the device. It only ever moves forward:
advertised, shared, uploaded, confirmed, revealed. The secrets of a round are in its entry until the round
ends.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

from solera.device.policy import Agreement, Spent, cost_of
from solera.device.store import Store

DAY = 86_400.0
_JOIN_NEXT, _YES = "join_next", "yes"  # by this setting the owner agrees to the next federation that asks
NODE_WANTED = "node_wanted"  # the setting by which the node starts with the service
ASKED, JOINED, PAUSED, LEFT = "asked", "joined", "paused", "left"


class Stage(IntEnum):
    """How far a round has come on this device."""

    ADVERTISED = 1
    SHARED = 2
    UPLOADED = 3  # a masked upload has left
    CONFIRMED = 4
    REVEALED = 5  # shares have left by which a sum can be opened
    PLAIN = 6  # an upload has left that the server sees


class Entry(NamedTuple):
    """One masked round as it begins."""

    context: str
    federation: str
    round: int
    attempt: int
    state: str  # digest of what is trained from
    cohort: dict[str, int]  # users asked, by node; later those of the survivors
    clip: float | None
    noise: float | None
    terms: str
    secrets: bytes


class Opened(NamedTuple):
    """A sum that this device helped to open: users by node, and which of its own users are in it."""

    cohort: dict[str, int]
    slots: list[int]


class Ledger:
    """Reads and writes; the caller has a transaction open where several steps belong together."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def standing(self, federation: str) -> str | None:
        """Whether the owner has joined or left a federation, or was asked; None if it is unknown."""
        rows = self._store.rows("SELECT standing FROM federations WHERE id = ?", federation)
        return str(rows[0]["standing"]) if rows else None

    def agreed(self, federation: str) -> Agreement:
        """What the federation said it would do, when the owner was asked."""
        rows = self._store.rows("SELECT offer FROM federations WHERE id = ?", federation)
        return Agreement.model_validate_json(rows[0]["offer"]) if rows else Agreement()

    def federations(self) -> list[dict[str, Any]]:
        """All federations that ever asked, with the owner's decision."""
        rows = self._store.rows("SELECT id, standing, offer, time FROM federations ORDER BY time, id")
        return [dict(row) | {"offer": json.loads(row["offer"])} for row in rows]

    def asked(self, federation: str, offer: Agreement) -> str:
        """Note that a federation asks.

        An owner who said yes beforehand has joined it by that, unless it offers less than was said then.
        """
        said = self._store.settings().get(_JOIN_NEXT)
        is_agreed = said == _YES or (said and not offer.weaker_than(Agreement.model_validate_json(said)))
        standing = JOINED if is_agreed else ASKED
        with self._store.writing():
            self._enter(federation, standing, offer)
            if is_agreed:
                self.join_next(False)
        return standing

    def join(self, federation: str) -> None:
        """Record that the owner agrees to the offer."""
        self._enter(federation, JOINED, self.agreed(federation))

    def pause(self, federation: str) -> None:
        """Record that the owner takes no part until joining again. A yes said beforehand is taken back."""
        with self._store.writing():
            self.join_next(False)
            self._enter(federation, PAUSED, self.agreed(federation))

    def leave(self, federation: str) -> None:
        """Record that the owner has left. A yes said beforehand is taken back."""
        with self._store.writing():
            self.join_next(False)
            self._enter(federation, LEFT, self.agreed(federation))

    def leave_all(self) -> None:
        """Leave all federations that the owner has joined or paused. Nothing joins again by itself."""
        with self._store.writing():
            self.join_next(False)
            for each in self.federations():
                if each["standing"] in (JOINED, PAUSED):
                    self.leave(each["id"])

    @property
    def joins_next(self) -> bool:
        """Whether the owner has agreed to the next federation that asks."""
        return bool(self._store.settings().get(_JOIN_NEXT))

    def join_next(self, agreed: Agreement | bool = True) -> None:
        """The owner agrees to the next federation that asks and offers no less than that.

        True stands for whatever it offers within the policy. The federation may be one that the owner has
        left, paused or not decided about: the latest word counts.
        """
        said = agreed.model_dump_json() if isinstance(agreed, Agreement) else _YES if agreed else ""
        self._store.set(_JOIN_NEXT, said)

    def _enter(self, federation: str, standing: str, offer: Agreement) -> None:
        with self._store.writing() as connection:
            connection.execute(
                "INSERT INTO federations VALUES (?1, ?2, ?3, ?4)"
                " ON CONFLICT (id) DO UPDATE SET standing = ?2, offer = ?3, time = ?4",
                (federation, standing, offer.model_dump_json(), int(time.time())),
            )

    def begin(self, entry: Entry) -> bool:
        """Enter a round; the secrets of all others are erased. False if it was entered before."""
        row = entry._asdict() | {"cohort": json.dumps(entry.cohort)}
        row |= {"stage": int(Stage.ADVERTISED), "time": int(time.time())}
        with self._store.writing() as connection:
            self.erase()
            done = connection.execute(
                f"INSERT OR IGNORE INTO rounds ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})",
                tuple(row.values()),
            )
            return bool(done.rowcount)

    def plain(self, federation: str, round_: int, attempt: int) -> None:
        """Record an unmasked upload."""
        with self._store.writing() as connection:
            connection.execute(
                "INSERT INTO rounds (federation, round, state, stage, cohort, attempt, time)"
                " VALUES (?, ?, '', ?, '{}', ?, ?)",
                (federation, round_, int(Stage.PLAIN), attempt, int(time.time())),
            )

    def current(self, federation: str, round_: int, attempt: int) -> tuple[str, bytes] | None:
        """Terms and secrets of the masked round under way, if it is that one."""
        rows = self._store.rows(
            "SELECT terms, secrets FROM rounds WHERE federation = ? AND round = ? AND attempt = ?"
            " AND secrets IS NOT NULL",
            federation,
            round_,
            attempt,
        )
        return (str(rows[0]["terms"]), bytes(rows[0]["secrets"])) if rows else None

    def advance(
        self,
        context: str,
        stage: Stage,
        secrets: bytes | None,
        *,
        cohort: Mapping[str, int] | None = None,
        slots: Sequence[int] | None = None,
    ) -> None:
        """Advance a round to its next stage and secrets (None: no more secrets)."""
        with self._store.writing() as connection:
            connection.execute(
                "UPDATE rounds SET stage = MAX(stage, ?2), secrets = ?3, cohort = COALESCE(?4, cohort),"
                " slots = COALESCE(?5, slots) WHERE context = ?1",
                (
                    context,
                    int(stage),
                    secrets,
                    *(None if each is None else json.dumps(each) for each in (cohort, slots)),
                ),
            )

    def keep_reveal(self, context: str, request: str, reply: bytes) -> None:
        """Keep what was revealed, so that a server that lost it gets the same again, and nothing else."""
        with self._store.writing() as connection:
            connection.execute(
                "UPDATE rounds SET request = ?2, reveal = ?3 WHERE context = ?1", (context, request, reply)
            )

    def reveal(self, federation: str, round_: int, attempt: int, request: str) -> bytes | None:
        """The reply that was revealed to the same request before."""
        rows = self._store.rows(
            "SELECT reveal FROM rounds WHERE federation = ? AND round = ? AND attempt = ? AND request = ?",
            federation,
            round_,
            attempt,
            request,
        )
        return bytes(rows[0]["reveal"]) if rows and rows[0]["reveal"] is not None else None

    def erase(self) -> None:
        """End the masked round under way: its secrets are deleted, and no reveal is sent again."""
        with self._store.writing() as connection:
            connection.execute(
                "UPDATE rounds SET secrets = NULL, reveal = NULL"
                " WHERE secrets IS NOT NULL OR reveal IS NOT NULL"
            )

    def last_revealed(self, federation: str) -> int:
        """The highest round of which this device has helped to open a sum; -1 if there is none."""
        rows = self._store.rows(
            "SELECT MAX(round) FROM rounds WHERE federation = ? AND stage = ?",
            federation,
            int(Stage.REVEALED),
        )
        return -1 if rows[0][0] is None else int(rows[0][0])

    def opened(self, noise_below: float, *, or_uploaded: bool = False) -> list[Opened]:
        """All sums with less noise that this device helped to open; or all that it has uploaded to."""
        rows = self._store.rows(
            "SELECT cohort, slots FROM rounds WHERE stage BETWEEN ? AND ? AND COALESCE(noise, 0) < ?",
            int(Stage.UPLOADED if or_uploaded else Stage.REVEALED),
            int(Stage.REVEALED),
            noise_below,
        )
        return [Opened(json.loads(row["cohort"]), json.loads(row["slots"])) for row in rows]

    def is_repeated(self, federation: str, round_: int, state: str) -> bool:
        """Whether a masked upload of that round, or from that state, has left the device."""
        rows = self._store.rows(
            "SELECT 1 FROM rounds WHERE federation = ? AND (round = ? OR state = ?) AND stage BETWEEN ? AND ?"
            " LIMIT 1",
            federation,
            round_,
            state,
            int(Stage.UPLOADED),
            int(Stage.REVEALED),
        )
        return bool(rows)

    def evaluated(self, federation: str, users: int, epsilon: float) -> None:
        """Record the answer to an evaluation."""
        with self._store.writing() as connection:
            connection.execute(
                "INSERT INTO evaluations (federation, users, epsilon, time) VALUES (?, ?, ?, ?)",
                (federation, users, epsilon, int(time.time())),
            )

    def evaluation_epsilon(self, federation: str | None = None) -> float:
        """ε of all answers to evaluations that ever left the device, to one federation or to all."""
        rows = self._store.rows(
            "SELECT COALESCE(SUM(epsilon), 0) FROM evaluations WHERE ?1 IS NULL OR federation = ?1",
            federation,
        )
        return float(rows[0][0])

    def uploads(self, federation: str) -> int:
        """Number of uploads ever sent to a federation."""
        rows = self._store.rows(
            "SELECT COUNT(*) FROM rounds WHERE federation = ? AND stage >= ?", federation, int(Stage.UPLOADED)
        )
        return int(rows[0][0])

    def uploads_today(self) -> int:
        """How many uploads left in the last 24 hours. Times in the future count: a clock may be wrong."""
        rows = self._store.rows(
            "SELECT COUNT(*) FROM rounds WHERE stage >= ? AND time > ?",
            int(Stage.UPLOADED),
            int(time.time() - DAY),
        )
        return int(rows[0][0])

    def spent(self, federation: str) -> Spent:
        """Privacy cost of all uploads that ever left the device, opened or not."""
        rows = self._store.rows(
            "SELECT federation = ? AS here, noise, COUNT(*) AS times FROM rounds WHERE stage >= ?"
            " GROUP BY here, noise",
            federation,
            int(Stage.UPLOADED),
        )
        costs = {True: 0.0, False: 0.0}
        for row in rows:
            costs[bool(row["here"])] += row["times"] * cost_of(row["noise"])
        return Spent(costs[True], costs[True] + costs[False])
