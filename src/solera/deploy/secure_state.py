"""A node's secrets of a masked round, in its database: they outlast the process, and nothing else.

They are written before the answer that follows from them leaves, in the same step as its entry in the outbox,
and only forwards. At most one round has any; those of an earlier one are erased when the next begins. The
digest of every round that ever began stays, so that none begins twice.
"""

from __future__ import annotations

from solera.deploy.protocol import Proposal, Reason, RefusalError
from solera.device.store import Store

_TABLE = (
    "CREATE TABLE IF NOT EXISTS masked_rounds"
    " (context TEXT PRIMARY KEY, token TEXT NOT NULL, proposal TEXT NOT NULL, state BLOB)"
)


class SecureState:
    """Reads and writes; the caller has a transaction open where it matters."""

    def __init__(self, store: Store) -> None:
        self._store = store
        with store.writing() as connection:
            connection.execute(_TABLE)

    def begin(self, context: bytes, proposal: Proposal, state: bytes) -> None:
        """A round that this node has never been in; all others end."""
        self.erase()
        with self._store.writing() as connection:
            row = (context.hex(), proposal.token, proposal.model_dump_json(), state)
            done = connection.execute("INSERT OR IGNORE INTO masked_rounds VALUES (?, ?, ?, ?)", row)
            if not done.rowcount:
                raise RefusalError(Reason.ROUND, "this masked round was begun before")

    def current(self, token: str) -> tuple[Proposal, bytes]:
        """What was agreed on for the round under way, which must be the one meant, and its state."""
        rows = self._store.rows(
            "SELECT proposal, state FROM masked_rounds WHERE state IS NOT NULL AND token = ?", token
        )
        if not rows:
            raise RefusalError(Reason.ROUND, f"no masked round {token} is under way here")
        return Proposal.model_validate_json(rows[0]["proposal"]), bytes(rows[0]["state"])

    def put(self, token: str, state: bytes) -> None:
        """Replace the state by the next."""
        with self._store.writing() as connection:
            connection.execute(
                "UPDATE masked_rounds SET state = ? WHERE state IS NOT NULL AND token = ?", (state, token)
            )

    def erase(self) -> None:
        """No round is under way any more."""
        with self._store.writing() as connection:
            connection.execute("UPDATE masked_rounds SET state = NULL WHERE state IS NOT NULL")

    def wipe(self) -> None:
        """Leave nothing of what was erased in the log that the database writes ahead."""
        with self._store.errors():
            self._store.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
