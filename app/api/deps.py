"""What routes ask for: the transaction of the request and the catalog snapshot."""

from collections.abc import Iterator
from typing import Annotated

from fastapi import Depends, Request
from sqlalchemy.orm import Session

from app.domain.catalog import Catalog


def get_session(request: Request) -> Iterator[Session]:
    """One transaction a request; committed when the endpoint has returned, rolled back when it raised."""
    with request.app.state.session_factory.begin() as session:
        yield session


# With FastAPI's default scope the commit would run after the answer was sent, and a failed commit would still answer 201.
SessionDep = Annotated[Session, Depends(get_session, scope="function")]
"""The session of the request; nobody but this dependency commits."""


async def get_catalog(request: Request) -> Catalog:
    """The current snapshot of the catalog, immutable for the whole request."""
    catalog: Catalog = request.app.state.catalog.current
    return catalog


CatalogDep = Annotated[Catalog, Depends(get_catalog)]
"""The catalog snapshot that answers the request."""
