"""The search for a deployment over HTTP: off the event loop, and given up when the caller is gone."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from fastapi import APIRouter, Request

from app.api.deps import CatalogDep
from app.api.route import PlannerRoute
from app.domain.recommendation import RecommendAnswer
from app.domain.search import Progress
from app.services import recommendation
from app.services.recommendation import RecommendRequest

router = APIRouter(tags=["estimates"], route_class=PlannerRoute)

SEARCHES_AT_ONCE = 2
"""Further ones wait for a place: more would only slow each other and everything else down."""
_searches = ThreadPoolExecutor(SEARCHES_AT_ONCE, thread_name_prefix="search")


@router.post("/recommend", summary="What to rent?")
async def recommend(body: RecommendRequest, catalog: CatalogDep, request: Request) -> RecommendAnswer:
    """The cheapest deployments that hold the latency objectives, over accelerators, layouts, precisions and engine settings.

    Beside them the front of price, headroom, TTFT and TPOT, and why the other candidates were refused. A search that meets
    `limits.max_search_s` answers with what it has found and `search.complete` false.
    """
    progress = Progress()
    watch = asyncio.create_task(_cancel_when_gone(request, progress))
    try:
        return await asyncio.get_running_loop().run_in_executor(_searches, recommendation.recommend, catalog, body, progress)
    finally:
        progress.cancelled = True  # also when this task is cancelled: the thread then stops by itself
        watch.cancel()
        with suppress(asyncio.CancelledError):
            await watch


async def _cancel_when_gone(request: Request, progress: Progress) -> None:
    """The body has been read: what comes next is that the caller hangs up."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
    progress.cancelled = True
