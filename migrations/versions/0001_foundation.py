"""Catalogs, plans, idempotency keys and API keys."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import ARRAY, JSON, JSONB

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

TABLES = ("api_keys", "idempotency_keys", "plan_revisions", "plans", "catalog_state", "prices", "models", "gpus")


def timestamp(name: str) -> sa.Column[object]:
    """A point in time that the database fills in."""
    return sa.Column(name, sa.DateTime(timezone=True), nullable=False, server_default=sa.text("now()"))


def create_catalog_table(name: str, *columns: sa.Column[object]) -> None:
    """Create one of the three tables of catalog entries."""
    op.create_table(
        name,
        sa.Column("slug", sa.Text, nullable=False),
        sa.Column("origin", sa.Text, nullable=False),
        sa.Column("entry", JSONB, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        timestamp("created_at"),
        timestamp("updated_at"),
        *columns,
        sa.PrimaryKeyConstraint("slug", name=f"pk_{name}"),
        sa.CheckConstraint("origin in ('bundled', 'own')", name=op.f(f"ck_{name}_origin")),
    )


def upgrade() -> None:
    """Apply."""
    create_catalog_table("gpus")
    create_catalog_table("models", sa.Column("hf_id", sa.Text, nullable=True))
    op.create_index("ix_models_hf_id_lower", "models", [sa.text("lower(hf_id)")])
    create_catalog_table("prices")
    catalog_state = op.create_table(
        "catalog_state",
        sa.Column("id", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("revision", sa.BigInteger, nullable=False),
        sa.Column("bundled_digest", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_catalog_state"),
        sa.CheckConstraint("id = 1", name=op.f("ck_catalog_state_single_row")),
    )
    op.bulk_insert(catalog_state, [{"id": 1, "revision": 0, "bundled_digest": ""}])

    op.create_table(
        "plans",
        sa.Column("id", sa.Uuid, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("labels", ARRAY(sa.Text), nullable=False),
        sa.Column("notes", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("model_slug", sa.Text, nullable=True),
        sa.Column("gpu_slug", sa.Text, nullable=True),
        sa.Column("revision", sa.Integer, nullable=False),
        sa.Column("deleted_at", sa.DateTime(timezone=True), nullable=True),
        timestamp("created_at"),
        timestamp("updated_at"),
        sa.PrimaryKeyConstraint("id", name="pk_plans"),
    )
    op.create_index("ix_plans_labels", "plans", ["labels"], postgresql_using="gin")
    op.create_index("ix_plans_owner", "plans", ["owner"])
    op.create_index("ix_plans_model_slug", "plans", ["model_slug"])
    op.create_index("ix_plans_gpu_slug", "plans", ["gpu_slug"])
    op.create_index("ix_plans_created_at_id", "plans", ["created_at", "id"])
    op.create_table(
        "plan_revisions",
        sa.Column("plan_id", sa.Uuid, nullable=False),
        sa.Column("revision", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("labels", ARRAY(sa.Text), nullable=False),
        sa.Column("notes", sa.Text, nullable=False),
        sa.Column("model_slug", sa.Text, nullable=True),
        sa.Column("gpu_slug", sa.Text, nullable=True),
        sa.Column("request", JSON, nullable=False),
        sa.Column("inputs", JSON, nullable=False),
        sa.Column("answer", JSON, nullable=False),
        sa.Column("planner_version", sa.Text, nullable=False),
        sa.Column("catalog_version", sa.Text, nullable=False),
        timestamp("created_at"),
        sa.PrimaryKeyConstraint("plan_id", "revision", name="pk_plan_revisions"),
        sa.ForeignKeyConstraint(["plan_id"], ["plans.id"], name="fk_plan_revisions_plan_id_plans"),
    )

    op.create_table(
        "idempotency_keys",
        sa.Column("principal", sa.Text, nullable=False),
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("fingerprint", sa.Text, nullable=False),
        sa.Column("status", sa.Integer, nullable=False),
        sa.Column("headers", JSONB, nullable=False),
        sa.Column("body", JSON, nullable=False),
        timestamp("created_at"),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("principal", "key", name="pk_idempotency_keys"),
    )
    op.create_index("ix_idempotency_keys_expires_at", "idempotency_keys", ["expires_at"])
    op.create_table(
        "api_keys",
        sa.Column("id", sa.Uuid, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("key_sha256", sa.Text, nullable=False),
        sa.Column("scopes", ARRAY(sa.Text), nullable=False),
        timestamp("created_at"),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_api_keys"),
        sa.UniqueConstraint("key_sha256", name="uq_api_keys_key_sha256"),
    )


def downgrade() -> None:
    """Take back."""
    for table in TABLES:
        op.drop_table(table)
