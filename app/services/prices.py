"""What an accelerator or a replica costs an hour: as the request says, else the catalog's price of the kind that it asks for."""

from app.domain.catalog import Catalog, PriceKind
from app.domain.errors import MissingFigure
from app.domain.hardware import Gpu
from app.domain.provenance import Note, Step, step
from app.domain.units import plain, tidy
from app.services.cost_request import CostRequest
from app.services.references import resolve_gpu
from app.services.requests import CapacityRequest


def gpu_price(catalog: Catalog, request: CapacityRequest, gpu: Gpu | None, notes: list[Note]) -> tuple[float | None, str, list[Note]]:
    """Price of one accelerator [USD/hour], where it comes from, and warnings; None when nobody knows it.

    Adds a note for a catalog price.
    """
    kind = request.price_kind
    if request.usd_per_gpu_hour is not None:
        return request.usd_per_gpu_hour, "request", price_warnings(kind)
    found = None if gpu is None else _catalog_price(catalog, gpu.slug, notes, kind)
    if found is not None:
        return *found, price_warnings(kind)
    if gpu is None or "price_kind" not in request.model_fields_set:
        return None, "", []
    message = f"The catalog has no {PRICE_WORDS[kind]} price of {gpu.slug}, and usd_per_gpu_hour was not given: the cost is not told."
    return None, "", [Note(code="price_not_known", message=message)]


def replica_price(catalog: Catalog, request: CostRequest, notes: list[Note]) -> tuple[float, Step]:
    """Price of one replica [USD/hour] and its line of working; raises MissingFigure when the catalog has none.

    Adds a note for a catalog price.
    """
    if request.replica_usd_per_hour is not None:
        return request.replica_usd_per_hour, step(
            "replica_usd_per_hour", "given", plain(request.replica_usd_per_hour), request.replica_usd_per_hour, "USD/hour", "request"
        )
    assert request.num_gpus is not None  # noqa: S101 - the request type asks for it
    price, source = request.usd_per_gpu_hour, "request"
    gpu = None if request.gpu is None else resolve_gpu(catalog, request.gpu)  # an unknown name is refused beside a price, too
    if price is None:
        assert gpu is not None  # noqa: S101 - the request type asks for one of the two
        found = _catalog_price(catalog, gpu.slug, notes, request.price_kind)
        if found is None:
            kind = request.price_kind
            priced = catalog.price(gpu.slug) is not None
            raise MissingFigure(
                f"the catalog has no {PRICE_WORDS[kind]} price for {gpu.slug}",
                field="/price_kind" if priced else "/gpu",
                value=kind if priced else gpu.slug,
                expected="usd_per_gpu_hour, or replica_usd_per_hour",
            )
        price, source = found
    hourly = tidy(price * request.num_gpus)
    return hourly, step(
        "replica_usd_per_hour",
        "gpus x usd_per_gpu_hour",
        f"{request.num_gpus} x {plain(price)}",
        hourly,
        "USD/hour",
        source,
        basis="exact" if source == "request" else "datasheet",
    )


def price_warnings(kind: PriceKind) -> list[Note]:
    """What a kind of price leaves out."""
    if kind == "spot":
        return [Note(code="spot_interruptions", message="Spot capacity may be reclaimed at any time: what that loses is extra.")]
    if kind == "committed":
        return [Note(code="committed_term", message="Committed capacity is paid for to the end of its term, used or not.")]
    return []


PRICE_WORDS: dict[PriceKind, str] = {"on_demand": "on-demand", "spot": "spot", "committed": "committed"}


def _catalog_price(catalog: Catalog, gpu: str, notes: list[Note], kind: PriceKind = "on_demand") -> tuple[float, str] | None:
    """The lowest price of that kind of an accelerator, None when the catalog has none."""
    price = catalog.price(gpu, kind)
    if price is None:
        return None
    span = f" to {plain(price.high_usd_per_hour)}" if price.high_usd_per_hour != price.low_usd_per_hour else ""
    notes.append(
        Note(
            code="catalog_price",
            message=(
                f"usd_per_gpu_hour was not given: the lowest {PRICE_WORDS[kind]} price of {gpu}, {plain(price.low_usd_per_hour)}{span} USD "
                f"({price.priced_on})."
            ),
        )
    )
    return price.low_usd_per_hour, f"catalog {price.slug}, {price.priced_on}: {'; '.join(price.sources)}"
