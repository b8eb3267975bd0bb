"""Calibrations of the step-time model."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSON, JSONB

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.create_table(
        "calibrations",
        sa.Column("id", sa.Uuid, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("model_slug", sa.Text, nullable=False),
        sa.Column("gpu_slug", sa.Text, nullable=False),
        sa.Column("engine", sa.Text, nullable=False),
        sa.Column("entry", JSONB, nullable=False),
        sa.Column("result", JSON, nullable=False),
        sa.Column("planner_version", sa.Text, nullable=False),
        sa.Column("catalog_version", sa.Text, nullable=False),
        sa.Column("deleted_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.text("now()")),
        sa.PrimaryKeyConstraint("id", name="pk_calibrations"),
    )
    op.create_index("ix_calibrations_created_at_id", "calibrations", ["created_at", "id"])


def downgrade() -> None:
    """Take back."""
    op.drop_table("calibrations")
