"""What Alembic runs: see schema.upgrade."""

from alembic import context

from solera.federation.web.schema import METADATA

context.configure(connection=context.config.attributes["connection"], target_metadata=METADATA)
with context.begin_transaction():
    context.run_migrations()
