"""Run by Alembic: in `migrate.py` on the connection it hands over; by hand only to write a new revision."""

from alembic import context

from orchestrator.store.tables import METADATA

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    render_as_batch=True,
    compare_type=True,
)
with context.begin_transaction():
    context.run_migrations()
