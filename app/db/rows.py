"""The tables. A row never leaves `app.db`: each module converts it to its domain value in one function."""

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import BigInteger, CheckConstraint, DateTime, Double, ForeignKey, Index, Integer, MetaData, Text, Uuid, func, text
from sqlalchemy.dialects.postgresql import ARRAY, JSON, JSONB
from sqlalchemy.orm import DeclarativeBase, Mapped, declared_attr, mapped_column

JsonObject = dict[str, Any]


class Row(DeclarativeBase):
    """Common ancestor of the tables: names of constraints are fixed, so that a migration can drop them."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {  # noqa: RUF012 - read by SQLAlchemy, never changed
        datetime: DateTime(timezone=True),
        str: Text,
        JsonObject: JSONB,
        list[str]: ARRAY(Text),
        UUID: Uuid,
    }


class CatalogEntryRow(Row):
    """What the three catalog tables share; `entry` is the domain value as JSON."""

    __abstract__ = True

    slug: Mapped[str] = mapped_column(primary_key=True)
    origin: Mapped[str]
    entry: Mapped[JsonObject]
    version: Mapped[int] = mapped_column(Integer)
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())
    updated_at: Mapped[datetime] = mapped_column(server_default=func.now(), onupdate=func.now())

    @declared_attr.directive
    @classmethod
    def __table_args__(cls) -> tuple[Any, ...]:
        return (CheckConstraint("origin in ('bundled', 'own')", name="origin"),)

    @declared_attr.directive
    @classmethod
    def __mapper_args__(cls) -> dict[str, Any]:
        return {"version_id_col": cls.version}


class GpuRow(CatalogEntryRow):
    """An accelerator."""

    __tablename__ = "gpus"


class ModelRow(CatalogEntryRow):
    """An LLM."""

    __tablename__ = "models"

    hf_id: Mapped[str | None]

    @declared_attr.directive
    @classmethod
    def __table_args__(cls) -> tuple[Any, ...]:
        return (*super().__table_args__, Index("ix_models_hf_id_lower", text("lower(hf_id)")))


class PriceRow(CatalogEntryRow):
    """A price of an accelerator."""

    __tablename__ = "prices"


class CatalogStateRow(Row):
    """The single row that says which catalog the three tables hold."""

    __tablename__ = "catalog_state"
    __table_args__ = (CheckConstraint("id = 1", name="single_row"),)

    id: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    revision: Mapped[int] = mapped_column(BigInteger)
    bundled_digest: Mapped[str]


class PlanRow(Row):
    """A saved plan as it stands now; its contents are in its revisions."""

    __tablename__ = "plans"
    __table_args__ = (
        Index("ix_plans_labels", "labels", postgresql_using="gin"),
        Index("ix_plans_owner", "owner"),
        Index("ix_plans_model_slug", "model_slug"),
        Index("ix_plans_gpu_slug", "gpu_slug"),
        Index("ix_plans_created_at_id", "created_at", "id"),
    )

    id: Mapped[UUID] = mapped_column(primary_key=True)
    name: Mapped[str]
    owner: Mapped[str]
    labels: Mapped[list[str]]
    notes: Mapped[str]
    kind: Mapped[str]
    model_slug: Mapped[str | None]
    gpu_slug: Mapped[str | None]
    revision: Mapped[int] = mapped_column(Integer)
    deleted_at: Mapped[datetime | None]
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())
    updated_at: Mapped[datetime] = mapped_column(server_default=func.now(), onupdate=func.now())

    @declared_attr.directive
    @classmethod
    def __mapper_args__(cls) -> dict[str, Any]:
        return {"version_id_col": cls.revision}


class PlanRevisionRow(Row):
    """One state of a plan, never changed once written."""

    __tablename__ = "plan_revisions"

    plan_id: Mapped[UUID] = mapped_column(ForeignKey("plans.id"), primary_key=True)
    revision: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    name: Mapped[str]
    owner: Mapped[str]
    labels: Mapped[list[str]]
    notes: Mapped[str]
    model_slug: Mapped[str | None]
    gpu_slug: Mapped[str | None]
    # json, not jsonb: what was answered is kept as it was, with the order of its fields and the spelling of its numbers.
    request: Mapped[JsonObject] = mapped_column(JSON)
    inputs: Mapped[JsonObject] = mapped_column(JSON)  # the request with the defaults of the planner that answered it
    answer: Mapped[JsonObject] = mapped_column(JSON)
    planner_version: Mapped[str]
    catalog_version: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())


class CalibrationRow(Row):
    """A calibration, never changed once written."""

    __tablename__ = "calibrations"
    __table_args__ = (Index("ix_calibrations_created_at_id", "created_at", "id"),)

    id: Mapped[UUID] = mapped_column(primary_key=True)
    name: Mapped[str]
    owner: Mapped[str]
    model_slug: Mapped[str]
    gpu_slug: Mapped[str]
    engine: Mapped[str]
    entry: Mapped[JsonObject]  # what estimates need
    result: Mapped[JsonObject] = mapped_column(JSON)  # what was answered
    planner_version: Mapped[str]
    catalog_version: Mapped[str]
    deleted_at: Mapped[datetime | None]
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())


class DiagnosisProfileRow(Row):
    """Thresholds and objectives that a team keeps for its diagnoses."""

    __tablename__ = "diagnosis_profiles"

    name: Mapped[str] = mapped_column(primary_key=True)
    owner: Mapped[str]
    entry: Mapped[JsonObject]
    version: Mapped[int] = mapped_column(BigInteger)
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())
    updated_at: Mapped[datetime] = mapped_column(server_default=func.now(), onupdate=func.now())

    @declared_attr.directive
    @classmethod
    def __mapper_args__(cls) -> dict[str, Any]:
        return {"version_id_col": cls.version}


class IdempotencyKeyRow(Row):
    """The answer that a creation gave, kept so that its repetition gets the same one."""

    __tablename__ = "idempotency_keys"
    __table_args__ = (Index("ix_idempotency_keys_expires_at", "expires_at"),)

    principal: Mapped[str] = mapped_column(primary_key=True)
    key: Mapped[str] = mapped_column(primary_key=True)
    fingerprint: Mapped[str]
    status: Mapped[int] = mapped_column(Integer)
    headers: Mapped[JsonObject]
    body: Mapped[JsonObject] = mapped_column(JSON)  # repeated as it was answered, with the order of its fields
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())
    expires_at: Mapped[datetime]


class JobRow(Row):
    """A calculation that workers do; its work is in its parts."""

    __tablename__ = "jobs"
    __table_args__ = (
        CheckConstraint("state in ('queued', 'running', 'succeeded', 'failed', 'cancelled')", name="state"),
        Index("ix_jobs_created_at_id", "created_at", "id"),
        Index("ix_jobs_open", "state", postgresql_where=text("state in ('queued', 'running')")),
        Index("ix_jobs_ended_at", "ended_at"),
    )

    id: Mapped[UUID] = mapped_column(primary_key=True)
    kind: Mapped[str]
    state: Mapped[str]
    created_by: Mapped[str]
    request: Mapped[JsonObject] = mapped_column(JSON)
    answer: Mapped[JsonObject | None] = mapped_column(JSON(none_as_null=True))
    problem: Mapped[JsonObject | None] = mapped_column(JSON(none_as_null=True))
    planner_version: Mapped[str | None]
    catalog_version: Mapped[str | None]
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())
    started_at: Mapped[datetime | None]
    ended_at: Mapped[datetime | None]


class JobPartRow(Row):
    """What one worker computes at a time of a job, so that a killed worker costs no more than that."""

    __tablename__ = "job_parts"
    __table_args__ = (CheckConstraint("state in ('queued', 'running', 'done')", name="state"),)

    job_id: Mapped[UUID] = mapped_column(ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True)
    number: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    state: Mapped[str]
    attempts: Mapped[int] = mapped_column(Integer)
    progress_ratio: Mapped[float] = mapped_column(Double)
    inputs_digest: Mapped[str | None]  # of what the catalog contributed: parts of one job must agree
    result: Mapped[JsonObject | None] = mapped_column(JSON(none_as_null=True))


class ApiKeyRow(Row):
    """An API key; the key itself is stored nowhere."""

    __tablename__ = "api_keys"

    id: Mapped[UUID] = mapped_column(primary_key=True)
    name: Mapped[str]
    key_sha256: Mapped[str] = mapped_column(unique=True)
    scopes: Mapped[list[str]]
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())
    revoked_at: Mapped[datetime | None]
