"""`/jobs`: calculations that take longer than a request should, and how other paths start them."""

from collections.abc import Sequence
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from sqlalchemy.orm import Session

from app.api.auth import PrincipalDep, check_scope
from app.api.deps import SessionDep
from app.api.idempotency import REPLAYED_HEADER, created
from app.api.long_calls import wants_job
from app.api.pages import PageQuery, created_position, page
from app.api.route import PlannerRoute
from app.db import jobs as stored
from app.domain.access import Principal
from app.domain.idempotency import RecordedAnswer
from app.domain.job import Job, JobFilter, JobHead, JobKind, JobPage, JobState
from app.services import jobs
from app.services.job_work import Work

router = APIRouter(prefix="/jobs", tags=["jobs"], route_class=PlannerRoute)

JobId = Annotated[UUID, Path(description="Id of the job.")]
_HEADERS = {
    "Location": {"description": "Path of the job.", "schema": {"type": "string"}},
    "Preference-Applied": {"description": "`respond-async` where the request preferred it.", "schema": {"type": "string"}},
} | REPLAYED_HEADER
ACCEPTED: dict[int | str, dict[str, Any]] = {
    202: {"description": "The call has become a job, which has the answer when it has succeeded.", "model": JobHead, "headers": _HEADERS},
}
"""For paths that answer small calls at once."""
ACCEPTED_ALWAYS: dict[int | str, dict[str, Any]] = {202: {"model": JobHead, "headers": _HEADERS}}
"""For paths that do not."""


class JobQuery(PageQuery):
    """What the list of jobs can be asked for; all that is given must be met."""

    kind: JobKind | None = None
    """The calculation."""
    state: JobState | None = None
    """The state."""


def accepted(
    session: Session, principal: Principal, key: str | None, kind: JobKind, body: BaseModel, work: Work, prefer: Sequence[str] | None
) -> JSONResponse:
    """Start a job: 202 with its head and where it is found. Raises PlannerError for work that no job may be."""
    work.check()

    def create() -> RecordedAnswer:
        job = jobs.start(session, kind, body, work.num_parts, principal.identity)
        headers = {"Location": f"/jobs/{job.id}"}
        if wants_job(prefer):
            headers["Preference-Applied"] = "respond-async"
        return RecordedAnswer(status=202, headers=headers, body=_head(job).model_dump(mode="json"))

    return created(session, principal, key, f"job {kind}", body, create)


@router.get("", summary="List jobs")
def list_jobs(session: SessionDep, query: Annotated[JobQuery, Query()]) -> JobPage:
    """Jobs of all callers, newest first, without what they were asked and answered."""
    filters = query.filters()
    wanted = JobFilter(kind=query.kind, state=query.state)
    found = stored.list_jobs(session, wanted, created_position(query.page_token, filters), query.limit + 1)
    items, next_page_token = page(found, query.limit, filters, lambda job: (job.created_at.isoformat(), str(job.id)))
    return JobPage(items=items, next_page_token=next_page_token)


@router.get("/{job_id}", summary="How far is it, and what did it answer?", responses={404: {}})
def get_job(session: SessionDep, job_id: JobId) -> Job:
    """The request, how far the job is, and when it has ended its answer or the problem that it met."""
    return jobs.get(session, job_id)


@router.post("/{job_id}/cancel", summary="Cancel a job", responses={404: {}, 409: {"description": "It has ended otherwise."}})
def cancel_job(request: Request, session: SessionDep, principal: PrincipalDep, job_id: JobId) -> JobHead:
    """Ends it at once; workers drop its parts within seconds. To cancel a job that another key started needs the scope `write`."""
    _check_own(request, session, principal, job_id)
    return _head(jobs.cancel(session, job_id))


@router.delete(
    "/{job_id}", status_code=204, summary="Delete a job that has ended", responses={404: {}, 409: {"description": "It has not ended."}}
)
def delete_job(request: Request, session: SessionDep, principal: PrincipalDep, job_id: JobId) -> None:
    """With its request and its answer. To delete a job that another key started needs the scope `write`."""
    _check_own(request, session, principal, job_id)
    jobs.delete(session, job_id)


def _check_own(request: Request, session: Session, principal: Principal, job_id: UUID) -> None:
    """Whoever may start a job may end it; those of others are changed by who may change what is stored."""
    if jobs.get(session, job_id).created_by != principal.identity:
        check_scope(request.scope, "write")


def _head(job: Job) -> JobHead:
    return JobHead(**{name: getattr(job, name) for name in JobHead.model_fields})
