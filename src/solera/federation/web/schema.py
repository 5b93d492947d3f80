"""The tables of a federation's database, the same in PostgreSQL and SQLite."""

from __future__ import annotations

from pathlib import Path

from solera.core.errors import ConfigError, DeployError
from solera.federation.web.database import POSTGRES

try:
    from alembic import command
    from alembic.config import Config
    from sqlalchemy import (
        BigInteger,
        Column,
        Float,
        ForeignKey,
        Index,
        Integer,
        LargeBinary,
        MetaData,
        Table,
        Text,
        create_engine,
    )
    from sqlalchemy.exc import DBAPIError
except ImportError:
    raise ConfigError("a federation's server needs alembic", "pip install 'solera[deploy]'") from None

METADATA = MetaData()

DEVICES = Table(
    "devices",
    METADATA,
    Column("number", BigInteger, primary_key=True, autoincrement=False),  # 63 bits of its key's SHA-256
    Column("key", LargeBinary, nullable=False),  # public, DER
    Column("name", Text, nullable=False, server_default=""),
    Column("revoked", Integer, nullable=False, server_default="0"),
    Column("nonce", BigInteger, nullable=False, server_default="0"),  # of its last check-in
    Column("seen", Float(53), nullable=False, server_default="0"),  # when that was
    Column("session", Text, nullable=False, server_default=""),  # of the process that speaks for it
    postgresql_with={"fillfactor": 70},  # room for new versions of a row in its own page
)

TASKS = Table(
    "tasks",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("number", BigInteger, nullable=False),  # grows with every sending; workers look for a larger one
    Column("device", BigInteger, nullable=False),
    Column("kind", Text, nullable=False),
    Column("round", Text, nullable=False),
    Column("body", LargeBinary, nullable=False),  # what this device alone is sent
    Column("blob", Text, nullable=False, server_default=""),  # SHA-256 of what many are sent
    Column("fence", BigInteger, nullable=False),
    Column("expires", Float(53), nullable=False),
    Index("tasks_of_device", "device"),
    Index("tasks_by_number", "number"),
)

ANSWERS = Table(
    "answers",
    METADATA,
    Column("task", Text, ForeignKey("tasks.id", ondelete="CASCADE"), primary_key=True),  # one for each
    Column("digest", LargeBinary, nullable=False),
    Column("body", LargeBinary, nullable=False),
    Column("came", Float(53), nullable=False),
    Column("taken", Integer, nullable=False, server_default="0"),
    Index("answers_by_taken", "taken"),
)

COORDINATOR = Table(
    "coordinator",
    METADATA,
    Column("fence", BigInteger, primary_key=True, autoincrement=False),  # one row: that of the newest
)


def upgrade(url: str) -> None:
    """Bring a database to the newest schema."""
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).with_name("migrations")))
    engine = create_engine(url.replace(POSTGRES, "postgresql+psycopg://", 1))
    try:
        with engine.begin() as connection:
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
    except DBAPIError as error:
        said = " ".join(str(error.orig).split())
        raise DeployError(f"the database cannot be used: {said}", "check --database") from None
    finally:
        engine.dispose()
