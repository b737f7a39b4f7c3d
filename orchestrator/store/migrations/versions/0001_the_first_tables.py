"""The first tables."""

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.types import TypeEngine

revision = "0001"
down_revision = None


def _column(kind: TypeEngine[Any], name: str, null: bool) -> sa.Column[Any]:
    return sa.Column(name, kind, nullable=null)


def _text(name: str, *, null: bool = False) -> sa.Column[Any]:
    return _column(sa.String(), name, null)


def _integer(name: str, *, null: bool = False) -> sa.Column[Any]:
    return _column(sa.Integer(), name, null)


def _boolean(name: str, *, null: bool = False) -> sa.Column[Any]:
    return _column(sa.Boolean(), name, null)


def _bytes(name: str, *, null: bool = False) -> sa.Column[Any]:
    return _column(sa.LargeBinary(), name, null)


def _time(name: str, *, null: bool = False) -> sa.Column[Any]:
    return _column(sa.DateTime(timezone=True), name, null)


def _json(name: str, *, null: bool = False) -> sa.Column[Any]:
    return _column(sa.JSON(), name, null)


def upgrade() -> None:
    op.create_table(
        "credentials",
        _text("id"),
        _text("hash"),
        _text("scope"),
        _text("principal_kind"),
        _text("principal_id"),
        _time("created_at"),
        _time("expires_at", null=True),
        _time("revoked_at", null=True),
        _time("last_used_at", null=True),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("hash"),
    )
    op.create_table(
        "events",
        _integer("id"),
        _text("type"),
        _time("at"),
        _text("by_kind"),
        _text("by_id"),
        _text("thread_id", null=True),
        _text("terminal_id", null=True),
        _json("data"),
        sa.PrimaryKeyConstraint("id"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_events_terminal_id", "events", ["terminal_id", "id"])
    op.create_index("ix_events_thread_id", "events", ["thread_id", "id"])
    op.create_table(
        "idempotency_keys",
        _text("principal"),
        _text("operation"),
        _text("key"),
        _text("payload_sha256"),
        _text("thread_id", null=True),
        _bytes("response"),
        _time("created_at"),
        sa.PrimaryKeyConstraint("principal", "operation", "key"),
    )
    op.create_index("ix_idempotency_keys_created_at", "idempotency_keys", ["created_at"])
    op.create_table(
        "terminals",
        _integer("no"),
        _text("id"),
        _text("profile"),
        _text("driver"),
        _text("instance"),
        _text("working_directory"),
        _time("started_at"),
        _text("by_kind"),
        _text("by_id"),
        _text("name", null=True),
        _text("thread_id", null=True),
        _text("state"),
        _text("boot_id", null=True),
        _text("pane_id", null=True),
        _integer("pid", null=True),
        _text("credential_id", null=True),
        _time("ended_at", null=True),
        _json("exit", null=True),
        _integer("version"),
        sa.PrimaryKeyConstraint("no"),
        sa.UniqueConstraint("id"),
    )
    op.create_index("ix_terminals_name", "terminals", ["name"])
    op.create_index("ix_terminals_state", "terminals", ["state"])
    op.create_index("ix_terminals_thread_id", "terminals", ["thread_id"])
    op.create_table(
        "threads",
        _integer("no"),
        _text("id"),
        _text("origin"),
        _text("sender_kind"),
        _text("sender_id"),
        _time("created_at"),
        _text("recipient_kind", null=True),
        _text("recipient_id", null=True),
        _text("status"),
        _text("outcome", null=True),
        _text("holder", null=True),
        _integer("attempt"),
        _text("parent_id", null=True),
        _text("run_id", null=True),
        _text("runner", null=True),
        _boolean("waits"),
        _text("profile", null=True),
        _text("model", null=True),
        _text("working_directory", null=True),
        _time("accepted_at", null=True),
        _time("ended_at", null=True),
        _time("deadline_at", null=True),
        _time("expires_at", null=True),
        _text("cancel_reason", null=True),
        _text("result", null=True),
        _json("result_facts", null=True),
        _text("intent", null=True),
        _json("envelope", null=True),
        _json("warnings", null=True),
        _time("collected_at", null=True),
        _integer("version"),
        sa.PrimaryKeyConstraint("no"),
        sa.UniqueConstraint("id"),
    )
    op.create_index("ix_threads_parent_id", "threads", ["parent_id"])
    op.create_index("ix_threads_sender", "threads", ["sender_kind", "sender_id"])
    op.create_index("ix_threads_status", "threads", ["status"])
    op.create_table(
        "deliveries",
        _text("id"),
        _text("terminal_id"),
        _text("by_kind"),
        _text("by_id"),
        _time("created_at"),
        _integer("position"),
        _text("thread_id", null=True),
        _text("text", null=True),
        _text("state"),
        _text("reason", null=True),
        _integer("attempts"),
        _text("turn", null=True),
        _time("typed_at", null=True),
        _time("delivered_at", null=True),
        _integer("version"),
        sa.ForeignKeyConstraint(["terminal_id"], ["terminals.id"]),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("terminal_id", "position", name="uq_deliveries_position"),
    )
    op.create_table(
        "messages",
        _text("thread_id"),
        _integer("sequence_no"),
        _text("author_kind"),
        _text("author_id"),
        _text("text"),
        _time("created_at"),
        _json("payload", null=True),
        sa.ForeignKeyConstraint(["thread_id"], ["threads.id"]),
        sa.PrimaryKeyConstraint("thread_id", "sequence_no"),
    )
