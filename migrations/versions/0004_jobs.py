"""Jobs, and the queue that hands their parts to workers.

The queue's tables are Procrastinate's, in a schema of their own, made by the SQL of the release that is installed. A release whose tables
differ needs a migration that drops the schema, makes it again and defers the open parts anew: what matters is in `jobs` and `job_parts`.
"""

import sqlalchemy as sa
from alembic import op
from procrastinate.schema import SchemaManager
from sqlalchemy.dialects.postgresql import JSON

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

QUEUE_SCHEMA = "job_queue"


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "jobs",
        sa.Column("id", sa.Uuid, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("created_by", sa.Text, nullable=False),
        sa.Column("request", JSON, nullable=False),
        sa.Column("answer", JSON, nullable=True),
        sa.Column("problem", JSON, nullable=True),
        sa.Column("planner_version", sa.Text, nullable=True),
        sa.Column("catalog_version", sa.Text, nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.text("now()")),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_jobs"),
        sa.CheckConstraint("state in ('queued', 'running', 'succeeded', 'failed', 'cancelled')", name="ck_jobs_state"),
    )
    op.create_index("ix_jobs_created_at_id", "jobs", ["created_at", "id"])
    op.create_index("ix_jobs_open", "jobs", ["state"], postgresql_where=sa.text("state in ('queued', 'running')"))
    op.create_index("ix_jobs_ended_at", "jobs", ["ended_at"])
    op.create_table(
        "job_parts",
        sa.Column("job_id", sa.Uuid, nullable=False),
        sa.Column("number", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("progress_ratio", sa.Double, nullable=False),
        sa.Column("inputs_digest", sa.Text, nullable=True),
        sa.Column("result", JSON, nullable=True),
        sa.PrimaryKeyConstraint("job_id", "number", name="pk_job_parts"),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_job_parts_job_id_jobs", ondelete="CASCADE"),
        sa.CheckConstraint("state in ('queued', 'running', 'done')", name="ck_job_parts_state"),
    )
    op.execute(f"create schema {QUEUE_SCHEMA}")
    # Its SQL names no schema; Alembic's own table is found by the path as it was.
    op.execute("select set_config('inferplan.search_path', current_setting('search_path'), true)")
    op.execute(f"select set_config('search_path', '{QUEUE_SCHEMA}', true)")
    op.execute(sa.text(SchemaManager.get_schema()))
    op.execute("select set_config('search_path', current_setting('inferplan.search_path'), true)")


def downgrade() -> None:
    """Take back."""
    op.execute(f"drop schema {QUEUE_SCHEMA} cascade")
    op.drop_table("job_parts")
    op.drop_table("jobs")
