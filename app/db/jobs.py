"""Jobs and their parts. What a worker writes is bound to its attempt: one that was given up for dead changes nothing any more."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import ColumnElement, Row, Select, case, delete, func, insert, select, true, tuple_, update
from sqlalchemy.orm import Session

from app.db import job_queue
from app.db.rows import JobPartRow, JobRow, JsonObject
from app.domain.job import OPEN, PARTS_BEFORE, Job, JobFilter, JobHead, JobKind, JobState, QueueState
from app.domain.problem import Problem
from app.domain.provenance import Answer, Versions

_PARTS = (
    select(
        func.count().label("num_parts"),
        func.count().filter(JobPartRow.state == "done").label("num_parts_done"),
        func.coalesce(func.avg(JobPartRow.progress_ratio), 0.0).label("progress_ratio"),
    )
    .where(JobPartRow.job_id == JobRow.id)
    .lateral("parts")
)
HEAD_COLUMNS = (
    JobRow.id,
    JobRow.kind,
    JobRow.state,
    _PARTS.c.num_parts,
    _PARTS.c.num_parts_done,
    _PARTS.c.progress_ratio,
    JobRow.created_by,
    JobRow.created_at,
    JobRow.started_at,
    JobRow.ended_at,
    JobRow.answer["summary"].as_string().label("summary"),
    JobRow.planner_version,
    JobRow.catalog_version,
)


class Attempt(NamedTuple):
    """A worker's turn at a part."""

    job_id: UUID
    number: int
    attempts: int
    kind: JobKind
    request: JsonObject


class PartResult(NamedTuple):
    """What a part came to."""

    number: int
    inputs_digest: str
    result: JsonObject


def insert_job(session: Session, job_id: UUID, kind: JobKind, request: JsonObject, num_parts: int, created_by: str) -> None:
    """Store a job and queue its parts."""
    session.execute(insert(JobRow).values(id=job_id, kind=kind, state="queued", request=request, created_by=created_by))
    new = {"job_id": job_id, "state": "queued", "attempts": 0, "progress_ratio": 0.0}
    session.execute(insert(JobPartRow), [{**new, "number": number} for number in range(num_parts)])
    job_queue.defer(session, job_id, range(num_parts), priority=PARTS_BEFORE[kind])


def find(session: Session, job_id: UUID) -> Job | None:
    """A job with all that it was asked and answered."""
    row = session.execute(_heads(JobRow.request, JobRow.answer, JobRow.problem).where(JobRow.id == job_id)).one_or_none()
    if row is None:
        return None
    problem = None if row.problem is None else Problem.model_validate(row.problem)
    return Job(**_head_fields(row), request=row.request, answer=row.answer, problem=problem)


def list_jobs(session: Session, wanted: JobFilter, after: tuple[datetime, UUID] | None, limit: int) -> Sequence[JobHead]:
    """Jobs that the filter lets through, newest first, from the one behind `after`."""
    statement = _heads()
    if wanted.kind is not None:
        statement = statement.where(JobRow.kind == wanted.kind)
    if wanted.state is not None:
        statement = statement.where(JobRow.state == wanted.state)
    if after is not None:
        statement = statement.where(tuple_(JobRow.created_at, JobRow.id) < tuple_(*after))
    statement = statement.order_by(JobRow.created_at.desc(), JobRow.id.desc()).limit(limit)
    return [JobHead(**_head_fields(row)) for row in session.execute(statement)]


def num_open(session: Session) -> int:
    """Jobs that have not ended."""
    return session.execute(select(func.count()).select_from(JobRow).where(JobRow.state.in_(OPEN))).scalar_one()


def end(session: Session, job_id: UUID, state: JobState, problem: Problem | None = None) -> bool:
    """Cancel an open job or let it fail; whether it was open. Its workers find out when they next tell how far they are."""
    values: dict[str, object] = {"state": state, "ended_at": func.now()}
    if problem is not None:
        values["problem"] = problem.model_dump(mode="json")
    ended = session.execute(_of_open(job_id).values(**values).returning(JobRow.id)).one_or_none()
    if ended is not None:
        _forget_results(session, job_id)
    return ended is not None


def delete_job(session: Session, job_id: UUID) -> bool:
    """Delete a job that has ended; whether there was one."""
    statement = delete(JobRow).where(JobRow.id == job_id, JobRow.state.not_in(OPEN)).returning(JobRow.id)
    return session.execute(statement.execution_options(synchronize_session=False)).one_or_none() is not None


def delete_ended(session: Session, older_than: timedelta) -> int:
    """Delete jobs that ended longer ago, and say how many."""
    statement = delete(JobRow).where(JobRow.ended_at < func.now() - older_than).returning(JobRow.id)
    return len(session.execute(statement.execution_options(synchronize_session=False)).all())


def begin_part(session: Session, job_id: UUID, number: int) -> Attempt | None:
    """A worker takes a part; None when there is nothing left to do for it."""
    job = session.execute(
        _of_open(job_id)
        .values(state="running", started_at=func.coalesce(JobRow.started_at, func.now()))
        .returning(JobRow.kind, JobRow.request)
    ).one_or_none()
    if job is None:
        return None
    attempts = session.execute(
        _of_part(job_id, number)
        .where(JobPartRow.state != "done")
        .values(state="running", attempts=JobPartRow.attempts + 1, progress_ratio=0.0)
        .returning(JobPartRow.attempts)
    ).scalar_one_or_none()
    return None if attempts is None else Attempt(job_id, number, attempts, job.kind, job.request)


def tell_progress(session: Session, attempt: Attempt, progress_ratio: float) -> bool:
    """Write how far a part is; False when its work is not wanted any more: the job has ended, or another worker has the part."""
    wanted = select(JobRow.id).where(JobRow.id == attempt.job_id, JobRow.state == "running").exists()
    told = session.execute(_of_attempt(attempt).where(wanted).values(progress_ratio=progress_ratio).returning(JobPartRow.number))
    return told.one_or_none() is not None


def hand_back(session: Session, attempt: Attempt) -> None:
    """A worker that ends in order gives up a part, which counts for nothing, and queues it for another."""
    values = {"state": "queued", "attempts": JobPartRow.attempts - 1, "progress_ratio": 0.0}
    if session.execute(_of_attempt(attempt).values(**values).returning(JobPartRow.number)).one_or_none() is not None:
        job_queue.defer(session, attempt.job_id, [attempt.number], priority=PARTS_BEFORE[attempt.kind])


def end_part(session: Session, attempt: Attempt, inputs_digest: str, result: JsonObject) -> Sequence[PartResult] | None:
    """Keep what a part came to. All results of the job when it was the last one, else None; the job stays locked meanwhile."""
    locked = select(JobRow.id).where(JobRow.id == attempt.job_id, JobRow.state == "running").with_for_update()
    if session.execute(locked).one_or_none() is None:
        return None
    done = {"state": "done", "progress_ratio": 1.0, "inputs_digest": inputs_digest, "result": result}
    if session.execute(_of_attempt(attempt).values(**done).returning(JobPartRow.number)).one_or_none() is None:
        return None
    of_job = JobPartRow.job_id == attempt.job_id
    if session.execute(select(JobPartRow.number).where(of_job, JobPartRow.state != "done").limit(1)).one_or_none() is not None:
        return None
    parts = select(JobPartRow.number, JobPartRow.inputs_digest, JobPartRow.result).where(of_job).order_by(JobPartRow.number)
    return [PartResult(row.number, row.inputs_digest or "", row.result or {}) for row in session.execute(parts)]


def redo(session: Session, attempt: Attempt, numbers: Sequence[int]) -> None:
    """Queue parts again that were computed from other inputs than the rest."""
    values = {"state": "queued", "attempts": 0, "progress_ratio": 0.0, "result": None}
    statement = update(JobPartRow).where(JobPartRow.job_id == attempt.job_id, JobPartRow.number.in_(numbers)).values(**values)
    session.execute(statement.execution_options(synchronize_session=False))
    job_queue.defer(session, attempt.job_id, numbers, priority=PARTS_BEFORE[attempt.kind])


def succeed(session: Session, job_id: UUID, answer: Answer) -> None:
    """Keep the answer of a job that `end_part` has locked."""
    values = {
        "state": "succeeded",
        "answer": answer.model_dump(mode="json"),
        "planner_version": answer.versions.planner,
        "catalog_version": answer.versions.catalog,
        "ended_at": func.now(),
    }
    session.execute(_of_open(job_id).values(**values))
    _forget_results(session, job_id)


def queue_state(session: Session, alive_within_s: float) -> QueueState:
    """How the work stands; workers count whose last sign of life is no older than `alive_within_s` [s]."""
    queued = JobRow.state == "queued"
    age_s = func.extract("epoch", func.now() - func.min(case((queued, JobRow.created_at))))
    counts = select(func.count().filter(queued), func.count().filter(~queued), func.coalesce(age_s, 0)).where(JobRow.state.in_(OPEN))
    num_queued, num_running, oldest_s = session.execute(counts).one()
    return QueueState(
        num_queued=num_queued,
        num_running=num_running,
        oldest_queued_s=max(0.0, float(oldest_s)),
        num_workers=job_queue.num_workers(session, alive_within_s),
    )


def _heads(*more: ColumnElement[Any] | Any) -> Select[Any]:
    return select(*HEAD_COLUMNS, *more).join_from(JobRow, _PARTS, true())


def _of_open(job_id: UUID) -> Any:
    return update(JobRow).where(JobRow.id == job_id, JobRow.state.in_(OPEN)).execution_options(synchronize_session=False)


def _of_part(job_id: UUID, number: int) -> Any:
    of_part = (JobPartRow.job_id == job_id, JobPartRow.number == number)
    return update(JobPartRow).where(*of_part).execution_options(synchronize_session=False)


def _of_attempt(attempt: Attempt) -> Any:
    return _of_part(attempt.job_id, attempt.number).where(JobPartRow.state == "running", JobPartRow.attempts == attempt.attempts)


def _forget_results(session: Session, job_id: UUID) -> None:
    """What the parts came to is in the answer, or of no use."""
    statement = update(JobPartRow).where(JobPartRow.job_id == job_id, JobPartRow.result.is_not(None)).values(result=None)
    session.execute(statement.execution_options(synchronize_session=False))


def _head_fields(row: Row[Any]) -> dict[str, Any]:
    versions = None if row.planner_version is None else Versions(planner=row.planner_version, catalog=row.catalog_version)
    counts = {"num_parts": row.num_parts, "num_parts_done": row.num_parts_done, "progress_ratio": row.progress_ratio}
    times = {"created_at": row.created_at, "started_at": row.started_at, "ended_at": row.ended_at}
    return {
        "id": row.id,
        "kind": row.kind,
        "state": row.state,
        "created_by": row.created_by,
        "summary": row.summary,
        "versions": versions,
        **counts,
        **times,
    }
