"""The first tables, the same in PostgreSQL and SQLite."""

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0001", None


def upgrade() -> None:
    """Make them."""
    op.create_table(
        "devices",
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),  # of its key's SHA-256
        sa.Column("key", sa.LargeBinary, nullable=False),  # public, DER
        sa.Column("name", sa.Text, nullable=False, server_default=""),
        sa.Column("revoked", sa.Integer, nullable=False, server_default="0"),
        sa.Column("nonce", sa.BigInteger, nullable=False, server_default="0"),  # of its last check-in
        sa.Column("seen", sa.Float(53), nullable=False, server_default="0"),  # when that was
        sa.Column("session", sa.Text, nullable=False, server_default=""),  # of the process that speaks for it
        postgresql_with={"fillfactor": 70},  # room for new versions of a row in its own page
    )
    op.create_table(
        "tasks",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("number", sa.BigInteger, nullable=False),  # workers look for a larger one
        sa.Column("device", sa.BigInteger, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("round", sa.Text, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.Column("blob", sa.Text, nullable=False, server_default=""),  # what many devices are sent
        sa.Column("fence", sa.BigInteger, nullable=False),
        sa.Column("expires", sa.Float(53), nullable=False),
    )
    op.create_index("tasks_of_device", "tasks", ["device"])
    op.create_index("tasks_by_number", "tasks", ["number"])
    op.create_table(
        "answers",
        sa.Column(
            "task", sa.Text, sa.ForeignKey("tasks.id", ondelete="CASCADE"), primary_key=True
        ),  # its one
        sa.Column("digest", sa.LargeBinary, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.Column("came", sa.Float(53), nullable=False),
        sa.Column("taken", sa.Integer, nullable=False, server_default="0"),
    )
    op.create_index("answers_by_taken", "answers", ["taken"])
    op.create_table(  # one row: the number of the newest
        "coordinator", sa.Column("fence", sa.BigInteger, primary_key=True, autoincrement=False)
    )
    op.execute("INSERT INTO coordinator (fence) VALUES (0)")
