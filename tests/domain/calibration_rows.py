"""Sweeps that the model itself produces with constants that are known."""

from collections.abc import Iterable, Mapping

from app.domain.calibrated_model import moved_constants
from app.domain.calibration_fit import Measurement, Quantity, quantities
from app.domain.catalog import Catalog
from app.domain.deployment import Deployment
from app.domain.performance import Lengths, Performance, performance_of
from app.domain.step_constants import ConstantName

Point = tuple[float, float, int]
"""Prompt and output [tokens], concurrency."""
SWEEP: tuple[Point, ...] = tuple((input_tokens, 500.0, load) for input_tokens in (500.0, 6000.0) for load in (1, 4, 16, 64))


def replica(catalog: Catalog, point: Point, factors: Mapping[ConstantName, float], **deployment: object) -> Performance:
    """A replica under vLLM whose constants are those of its class times factors."""
    llm, gpu = catalog.model(str(deployment.pop("model", "llama-3.1-8b"))), catalog.gpu("h100-sxm-80gb")
    settings = Deployment.model_validate({"engine": "vllm", **deployment})
    engine = catalog.engine(settings.engine, settings.engine_version)
    model, lengths = catalog.step_model, Lengths(point[0], point[1])
    found = performance_of(llm, gpu, settings, engine, model, lengths, num_waves=10)
    return found.with_constants(moved_constants(model, factors, found.step_class))


def measured(
    catalog: Catalog,
    factors: Mapping[ConstantName, float],
    points: Iterable[Point] = SWEEP,
    noise: Iterable[float] = (),
    **deployment: object,
) -> list[Measurement]:
    """Rows as a replica with the factors gives them, TPOT times the noise, on a replica that is not known to have them."""
    rows, noises = [], iter(noise)
    for point in points:
        state = replica(catalog, point, factors, **deployment).closed(point[2])
        found: dict[Quantity, float] = quantities(state, point[1])
        found["tpot"] *= next(noises, 1.0)
        rows.append(Measurement(replica(catalog, point, {}, **deployment), point[2], found))
    return rows
