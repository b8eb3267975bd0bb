"""The search for a deployment over HTTP: off the event loop, and given up when the caller is gone; long ones as jobs."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool

from app.api.auth import PrincipalDep
from app.api.deps import CatalogDep, SessionDep
from app.api.idempotency import IdempotencyKey
from app.api.jobs import ACCEPTED, accepted
from app.api.long_calls import Prefer, unless_gone, wants_job
from app.api.route import PlannerRoute
from app.domain.recommendation import RecommendAnswer
from app.domain.search import Progress
from app.services import recommendation
from app.services.job_work import RecommendationWork
from app.services.recommendation import RecommendRequest

router = APIRouter(tags=["estimates"], route_class=PlannerRoute)

SEARCHES_AT_ONCE = 2
"""Further ones wait for a place: more would only slow each other and everything else down."""
_searches = ThreadPoolExecutor(SEARCHES_AT_ONCE, thread_name_prefix="search")


@router.post("/recommend", summary="What to rent?", response_model=RecommendAnswer, responses=ACCEPTED)
async def recommend(
    body: RecommendRequest,
    catalog: CatalogDep,
    session: SessionDep,
    principal: PrincipalDep,
    request: Request,
    prefer: Prefer = None,
    idempotency_key: IdempotencyKey = None,
) -> RecommendAnswer | Response:
    """The cheapest deployments that hold the latency objectives, over accelerators, layouts, precisions and engine settings.

    Beside them the front of price, headroom, TTFT and TPOT, and why the other candidates were refused. A search that meets
    `limits.max_search_s` answers with what it has found and `search.complete` false; one that may take longer than a minute, or look at
    more than a million candidates, becomes a job.
    """
    if wants_job(prefer) or not body.limits.is_direct:
        work = await run_in_threadpool(RecommendationWork, catalog, body)
        return await run_in_threadpool(accepted, session, principal, idempotency_key, "recommendation", body, work, prefer)

    def compute(is_gone: Callable[[], bool]) -> RecommendAnswer:
        progress = Progress()

        def tell(_: float) -> None:
            progress.cancelled = is_gone()

        return recommendation.recommend(catalog, body, progress, tell)

    return await unless_gone(request, _searches, compute)
