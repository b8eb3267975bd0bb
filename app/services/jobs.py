"""Jobs: start, find, cancel, delete, and the computing of a part by a worker."""

import threading
import time
from collections.abc import Callable
from datetime import timedelta
from uuid import UUID, uuid4

import structlog
from pydantic import BaseModel, ValidationError
from sqlalchemy.exc import InterfaceError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.orm import Session, sessionmaker

from app.db import jobs as stored
from app.domain.catalog import Catalog
from app.domain.errors import JobEnded, JobNotEnded, NotFound, PlannerError, QueueFull
from app.domain.job import MOST_ATTEMPTS, Job, JobKind, QueueState
from app.domain.json_difference import JsonObject
from app.domain.problem import FieldProblem, Problem
from app.services.job_work import Work, work_of

MOST_OPEN_JOBS = 1000
TELL_INTERVAL_S = 1.0
"""How often progress is written, and with it looked whether the work is still wanted [s]."""
DATABASE_AWAY = (OperationalError, InterfaceError, PoolTimeout)
DATABASE_PATIENCE_S = 60.0
"""So long a worker that has a result waits for the database [s]."""
RESULT_TRIES = 12


class _NotWanted(Exception):
    """The job has ended, or another worker has the part."""


class _Stopping(Exception):
    """This worker is to end."""


def start(session: Session, kind: JobKind, request: BaseModel, num_parts: int, created_by: str) -> Job:
    """Store a job and queue it; raises QueueFull."""
    if stored.num_open(session) >= MOST_OPEN_JOBS:
        raise QueueFull(f"{MOST_OPEN_JOBS} jobs have not ended; try again when some have, or cancel some")
    job_id = uuid4()
    stored.insert_job(session, job_id, kind, request.model_dump(mode="json", exclude_unset=True), num_parts, created_by)
    return get(session, job_id)


def get(session: Session, job_id: UUID) -> Job:
    """A job; raises NotFound."""
    job = stored.find(session, job_id)
    if job is None:
        raise NotFound(f"there is no job under the id {job_id}")
    return job


def cancel(session: Session, job_id: UUID) -> Job:
    """End a job without an answer; one that is cancelled already stays so. Raises NotFound, and JobEnded for one that ended otherwise."""
    ended = stored.end(session, job_id, "cancelled")
    job = get(session, job_id)
    if not ended and job.state != "cancelled":
        raise JobEnded(f"the job has {job.state} already")
    return job


def delete(session: Session, job_id: UUID) -> None:
    """Delete a job that has ended; raises NotFound and JobNotEnded."""
    if not stored.delete_job(session, job_id):
        raise JobNotEnded(f"the job is {get(session, job_id).state}: cancel it first")


def delete_old(session_factory: sessionmaker[Session], retention: timedelta) -> int:
    """Delete the jobs that ended longer ago than `retention`, and say how many."""
    with session_factory.begin() as session:
        return stored.delete_ended(session, retention)


def queue_state(session_factory: sessionmaker[Session], alive_within_s: float) -> QueueState | None:
    """How the work stands; None when the database does not say."""
    try:
        with session_factory() as session:
            return stored.queue_state(session, alive_within_s)
    except SQLAlchemyError:
        return None


def compute_part(
    session_factory: sessionmaker[Session], catalog: Callable[[], Catalog], stopping: threading.Event, job_id: UUID, number: int
) -> None:
    """Compute a part of a job; when it is the last one, its job gets its answer.

    Raises what SQLAlchemy raises when the database is away: the part is then tried again later. Everything else ends in the job.
    """
    with session_factory.begin() as session:
        attempt = stored.begin_part(session, job_id, number)
    if attempt is None:
        return
    if attempt.attempts > MOST_ATTEMPTS:
        detail = f"{MOST_ATTEMPTS} workers died over part {number} of the job; it may need more memory than they have."
        _fail(session_factory, attempt, _problem(job_id, 500, "worker_lost", "The workers died", detail))
        return
    log = structlog.get_logger().bind(job=str(job_id), part=number, attempt=attempt.attempts)
    began = time.monotonic()
    try:
        work = work_of(attempt.kind, catalog(), attempt.request)
        result = work.run(number, _teller(session_factory, attempt, stopping))
        _keep(session_factory, attempt, work, result)
    except DATABASE_AWAY:
        raise
    except _NotWanted:
        log.info("job_part_dropped")
    except _Stopping:
        with session_factory.begin() as session:
            stored.hand_back(session, attempt)
        log.info("job_part_handed_back")
    except Exception as error:
        _fail(session_factory, attempt, _problem_of(job_id, error))
        if not isinstance(error, PlannerError):
            log.exception("job_failed", request_id=str(job_id))
    else:
        log.info("job_part_computed", duration_s=round(time.monotonic() - began, 3))


def _teller(session_factory: sessionmaker[Session], attempt: stored.Attempt, stopping: threading.Event) -> Callable[[float], None]:
    """What the work tells how far it is; raises _Stopping and _NotWanted to end it. While the database is away the work goes on."""
    next_s = time.monotonic() + TELL_INTERVAL_S

    def tell(share: float) -> None:
        nonlocal next_s
        if stopping.is_set():
            raise _Stopping
        if time.monotonic() < next_s:
            return
        try:
            with session_factory.begin() as session:
                wanted = stored.tell_progress(session, attempt, min(1.0, max(0.0, share)))
        except DATABASE_AWAY:
            wanted = True
        next_s = time.monotonic() + TELL_INTERVAL_S
        if not wanted:
            raise _NotWanted

    return tell


def _keep(session_factory: sessionmaker[Session], attempt: stored.Attempt, work: Work, result: JsonObject) -> None:
    """Keep a result, patiently; the last one of a job makes the answer, in the same transaction."""
    digest = work.inputs_digest(attempt.number)
    for trial in range(RESULT_TRIES):
        try:
            with session_factory.begin() as session:
                parts = stored.end_part(session, attempt, digest, result)
                if parts is None:
                    return
                stale = [part.number for part in parts if part.inputs_digest != work.inputs_digest(part.number)]
                if stale:
                    structlog.get_logger().info("job_parts_redone", job=str(attempt.job_id), num_parts=len(stale))
                    stored.redo(session, attempt, stale)
                else:
                    stored.succeed(session, attempt.job_id, work.answer([part.result for part in parts]))
                return
        except DATABASE_AWAY:
            if trial == RESULT_TRIES - 1:
                raise
            time.sleep(DATABASE_PATIENCE_S / RESULT_TRIES)


def _fail(session_factory: sessionmaker[Session], attempt: stored.Attempt, problem: Problem) -> None:
    with session_factory.begin() as session:
        if stored.tell_progress(session, attempt, 0.0):
            stored.end(session, attempt.job_id, "failed", problem)


def _problem_of(job_id: UUID, error: Exception) -> Problem:
    """The problem that a direct answer would have been."""
    if isinstance(error, PlannerError):
        value = error.value if isinstance(error.value, bool | int | float | str) else None
        fields = []
        if (pointer := error.field) is not None:
            blamed = {"location": "body", "pointer": pointer, "code": error.code, "detail": error.detail, "expected": error.expected}
            fields = [FieldProblem.model_validate(blamed | {"value": value})]
        return _problem(job_id, 422, error.code, error.title, error.detail, fields)
    if isinstance(error, OverflowError):
        detail = "These figures lead to a result beyond 1.8e308."
        return _problem(job_id, 422, "result_out_of_range", "The result is out of range", detail)
    if isinstance(error, ValidationError):
        detail = f"This version of the planner does not take the stored request, or not its result: {error.errors()[0]['msg']}"
        return _problem(job_id, 422, "invalid_request", "The request is not valid", detail)
    detail = "The worker failed. The cause is in its log under the id of the job."
    return _problem(job_id, 500, "internal_error", "Internal error", detail)


def _problem(job_id: UUID, status: int, code: str, title: str, detail: str, fields: list[FieldProblem] | None = None) -> Problem:
    return Problem(
        type=f"/problems/{code}", title=title, status=status, detail=detail, code=code, request_id=str(job_id), errors=fields or []
    )
