"""What the routes of `/gpus` and `/models` share: the snapshot follows a change at once, and answers carry the version."""

from collections.abc import Iterator

from fastapi import Depends, Request, Response

from app.api.auth import require_scope
from app.api.etags import etag
from app.api.idempotency import REPLAYED_HEADER
from app.domain.catalog_entry import StoredEntry
from app.domain.idempotency import RecordedAnswer


def refresh_snapshot(request: Request) -> Iterator[None]:
    """Read the catalog again once the change is committed: dependencies of a route end after the session that its endpoint takes."""
    yield
    request.app.state.catalog.refresh_from(request.app.state.session_factory)


CHANGES = [Depends(require_scope("write")), Depends(refresh_snapshot, scope="function")]
"""Dependencies of every route that changes the catalog."""

ETAG_HEADER = {"ETag": {"description": "Version of the entry, for If-Match.", "schema": {"type": "string"}}}
CREATED_HEADERS = ETAG_HEADER | {"Location": {"description": "Path of the new entry.", "schema": {"type": "string"}}} | REPLAYED_HEADER


def with_etag(response: Response, entry: StoredEntry) -> None:
    """Put the version of the entry into the headers."""
    response.headers["ETag"] = etag(entry.version)


def new_entry(entry: StoredEntry, collection: str) -> RecordedAnswer:
    """The answer to the creation of an entry in the collection of that path."""
    headers = {"Location": f"{collection}/{entry.slug}", "ETag": etag(entry.version)}
    return RecordedAnswer(status=201, headers=headers, body=entry.model_dump(mode="json"))
