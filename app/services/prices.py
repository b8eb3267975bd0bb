"""What an accelerator or a replica costs an hour: as the request says, else the catalog's on-demand price."""

from app.domain.catalog import Catalog
from app.domain.errors import MissingFigure
from app.domain.hardware import Gpu
from app.domain.provenance import Note, Step, step
from app.domain.units import plain, tidy
from app.services.cost_request import CostRequest
from app.services.references import resolve_gpu
from app.services.requests import CapacityRequest


def gpu_price(catalog: Catalog, request: CapacityRequest, gpu: Gpu | None, notes: list[Note]) -> tuple[float | None, str]:
    """Price of one accelerator [USD/hour] and where it comes from; None when nobody knows it. Adds a note for a catalog price."""
    if request.usd_per_gpu_hour is not None:
        return request.usd_per_gpu_hour, "request"
    found = None if gpu is None else _catalog_price(catalog, gpu.slug, notes)
    return found or (None, "")


def replica_price(catalog: Catalog, request: CostRequest, notes: list[Note]) -> tuple[float, Step]:
    """Price of one replica [USD/hour] and its line of working; raises MissingFigure when the catalog has none.

    Adds a note for a catalog price.
    """
    if request.replica_usd_per_hour is not None:
        return request.replica_usd_per_hour, step(
            "replica_usd_per_hour", "given", plain(request.replica_usd_per_hour), request.replica_usd_per_hour, "USD/hour", "request"
        )
    assert request.gpus is not None  # noqa: S101 - the request type asks for it
    price, source = request.usd_per_gpu_hour, "request"
    gpu = None if request.gpu is None else resolve_gpu(catalog, request.gpu)  # an unknown name is refused beside a price, too
    if price is None:
        assert gpu is not None  # noqa: S101 - the request type asks for one of the two
        found = _catalog_price(catalog, gpu.slug, notes)
        if found is None:
            raise MissingFigure(
                f"the catalog has no price for {gpu.slug}",
                field="/gpu",
                value=gpu.slug,
                expected="usd_per_gpu_hour, or replica_usd_per_hour",
            )
        price, source = found
    hourly = tidy(price * request.gpus)
    return hourly, step(
        "replica_usd_per_hour",
        "gpus x usd_per_gpu_hour",
        f"{request.gpus} x {plain(price)}",
        hourly,
        "USD/hour",
        source,
        basis="exact" if source == "request" else "datasheet",
    )


def _catalog_price(catalog: Catalog, gpu: str, notes: list[Note]) -> tuple[float, str] | None:
    """The lowest on-demand price of an accelerator, None when the catalog has none."""
    price = catalog.price(gpu)
    if price is None:
        return None
    span = f" to {plain(price.high_usd_per_hour)}" if price.high_usd_per_hour != price.low_usd_per_hour else ""
    notes.append(
        Note(
            code="catalog_price",
            message=(
                f"usd_per_gpu_hour was not given: the lowest on-demand price of {gpu}, {plain(price.low_usd_per_hour)}{span} USD "
                f"({price.priced_on})."
            ),
        )
    )
    return price.low_usd_per_hour, f"catalog {price.slug}, {price.priced_on}: {'; '.join(price.sources)}"
