"""What several tests of the services ask for."""

import pytest

from app.catalog.loader import load_bundled
from app.domain.catalog import Catalog


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    bundled = load_bundled()
    return Catalog(gpus=bundled.gpus, models=bundled.models, prices=bundled.prices, version="c-1")
