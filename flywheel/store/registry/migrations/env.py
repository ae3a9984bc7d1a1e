"""Alembic environment: runs a migration on the URL it is given."""

import sqlalchemy as sa
from alembic import context

from flywheel.store.registry.schema import metadata

engine = sa.create_engine(context.config.get_main_option("sqlalchemy.url") or "")
with engine.connect() as connection:
    context.configure(connection=connection, target_metadata=metadata, render_as_batch=True)
    with context.begin_transaction():
        context.run_migrations()
engine.dispose()
