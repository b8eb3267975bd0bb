"""What computes an answer now."""

from app import __version__
from app.domain.catalog import Catalog
from app.domain.provenance import Versions


def versions_of(catalog: Catalog) -> Versions:
    """Versions of this planner and of the catalog snapshot that an answer is computed with."""
    return Versions(planner=__version__, catalog=catalog.version)
