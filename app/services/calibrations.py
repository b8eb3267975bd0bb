"""Calibrations: read the results files of one sweep, fit, keep, find, delete; within the caller's transaction."""

from collections.abc import Sequence
from typing import Annotated
from uuid import UUID, uuid4

from pydantic import Field
from sqlalchemy.orm import Session

from app.db import calibrations as stored
from app.db import catalog as catalog_rows
from app.domain.calibration import Setup, setup_of
from app.domain.calibration_answer import Calibration
from app.domain.calibration_findings import Fitted, SweepRow, calibrate
from app.domain.calibration_fit import Measurement, Quantity
from app.domain.catalog import Catalog
from app.domain.deployment import Deployment
from app.domain.errors import InvalidInput, NotFound, StaleVersion
from app.domain.load_point import LoadPoint, disagreements
from app.domain.performance import Lengths, Performance, performance_of, step_parts
from app.domain.plan import OwnerName, PlanName
from app.domain.provenance import Note
from app.domain.units import plain
from app.domain.value import Given
from app.importers.benchmark_results import MAX_FILES, read_sweep
from app.services.references import as_deployed, engine_of
from app.services.requests import Name
from app.services.versions import versions_of

MAX_FITTED_ROWS = 100
"""Rows of one calibration: a fit takes 30 to 120 ms of CPU for each."""
MOST_TOKENS, MOST_REQUESTS = 1e9, 1e6
"""As in requests for estimates."""
LEAST_SECONDS, MOST_SECONDS = 1e-6, 1e6
VERSION = 1
"""A calibration is never changed: its entity tag stays."""
MOST_OFF = 100
"""A figure farther than this from the prediction is in another unit, or of another thing: that of milliseconds and seconds is 1000."""
CONTRADICTIONS = frozenset({"part_above_whole", "latencies_disagree", "throughput_disagrees", "in_flight_above_concurrency"})
"""What makes a row useless for the fit: one of its figures is not what it is called."""

ResultsFile = Annotated[str, Field(min_length=1, max_length=2**22)]


class MeasuredSweep(Given):
    """One measured sweep of one set-up."""

    model: Name
    """Catalog slug or Hugging Face id of the model."""
    gpu: Name
    """Catalog slug or full name of the accelerator."""
    deployment: Deployment
    """How the replica ran: engine, version, layout, precisions and limits."""
    files: Annotated[Sequence[ResultsFile], Field(min_length=1, max_length=MAX_FILES)]
    """Results files as the tool wrote them: vLLM bench serve, SGLang bench_serving, GuideLLM, AIPerf or GenAI-Perf, llm-d."""
    length_width_ratio: Annotated[float, Field(ge=0, le=2)] = 0
    """Width of the range from which output lengths were drawn / mean; 0: all outputs were equally long."""


class NewCalibration(MeasuredSweep):
    """One measured sweep of one set-up, to be kept."""

    name: PlanName
    """What the calibration is called, one line."""
    owner: OwnerName
    """Person or team that answers for it, one line."""


def create(session: Session, catalog: Catalog, new: NewCalibration) -> Calibration:
    """Fit and keep a calibration; what is refused stores nothing. Raises PlannerError, see `fitted`."""
    setup, found = fitted(catalog, new)
    # The fit comes first: nobody's change of the catalog waits for it.
    catalog_rows.lock(session)
    catalog_rows.advance(session)
    return stored.insert_calibration(
        session,
        stored.NewRow(uuid4(), new.name, new.owner, setup, found, catalog.step_model.checked_on, versions_of(catalog)),
    )


def fitted(catalog: Catalog, new: MeasuredSweep) -> tuple[Setup, Fitted]:
    """The set-up and what the files say about it.

    Raises UnknownName, InvalidInput for files that are no results, for a sweep without a row that can be used, and for a deployment that
    serves nothing, MissingFigure naming what the catalog lacks.
    """
    llm, gpu = catalog.checkpoint(new.model), catalog.gpu(new.gpu)
    deployment, _ = as_deployed(catalog, new.deployment, llm, gpu)
    sweep = read_sweep(new.files)
    if len(sweep.points) > MAX_FITTED_ROWS:
        detail = f"the files hold {len(sweep.points)} points; a calibration takes at most {MAX_FITTED_ROWS}"
        raise InvalidInput(detail, field="/files", value=len(sweep.points), expected=f"at most {MAX_FITTED_ROWS} points")
    model = catalog.step_model
    engine, draft, parts = engine_of(catalog, deployment), deployment.draft, step_parts(llm, gpu, deployment, model)

    def replica(point: LoadPoint, num_waves: float | None) -> Performance:
        return performance_of(
            llm,
            gpu,
            deployment,
            engine,
            model,
            Lengths(point.mean_input_tokens or 0, point.mean_output_tokens or 0),
            draft=draft,
            num_waves=num_waves,
            length_width_ratio=new.length_width_ratio,
            parts=parts,
        )

    rows = []
    for number, point in enumerate(sweep.points, 1):
        load = _load(point)
        reason = _unusable(point) or ("neither a concurrency nor a rate with mean latencies is stated" if load is None else None)
        measurement = None
        if load is not None and reason is None:
            concurrency, num_waves = load
            performance = replica(point, num_waves)
            if performance.places < 1:
                found = performance.found
                detail = f"this deployment serves no request of point {number} ({found.verdict}, limited by {found.limiting})"
                raise InvalidInput(detail, field="/deployment", expected="the deployment that the files were measured on")
            measurement = Measurement(performance, concurrency, _measured(point))
            reason = _absurd(measurement)
            if reason is not None:
                measurement = None
        rows.append(SweepRow(number, load[0] if load else None, point.mean_input_tokens, point.mean_output_tokens, measurement, reason))
    if all(row.measurement is None for row in rows):
        reasons = "; ".join(f"point {row.point}: {row.unused_because}" for row in rows[:3])
        raise InvalidInput(f"no point of the files can be used ({reasons})", field="/files", expected="lengths, a load and mean latencies")
    setup = setup_of(llm, gpu, deployment)
    return setup, calibrate(rows, setup, model, [*sweep.notes, *_other_model(sweep.points, new.model, (llm.slug, llm.hf_id or ""))])


def get(session: Session, calibration_id: UUID) -> Calibration:
    """One calibration; raises NotFound."""
    return stored.find(session, calibration_id) or _gone(calibration_id)


def delete(session: Session, calibration_id: UUID, expected: frozenset[int] | None) -> None:
    """Take it out of lists and later estimates; its row stays for answers that name it. Raises NotFound and StaleVersion."""
    catalog_rows.lock(session)
    if expected is not None and VERSION not in expected:
        get(session, calibration_id)
        detail = f"calibration {calibration_id} has another ETag"
        raise StaleVersion(detail, value=str(calibration_id), expected="If-Match with the ETag that GET gives")
    if not stored.mark_deleted(session, calibration_id):
        _gone(calibration_id)
    catalog_rows.advance(session)


def _gone(calibration_id: UUID) -> Calibration:
    raise NotFound(f"there is no calibration under the id {calibration_id}")


def _load(point: LoadPoint) -> tuple[float, float | None] | None:
    """(requests in the system, waves of as many in a run that starts with them at once or None for the steady state); None where not known.

    A rate keeps as many requests in flight as Little's law says; neither a rate nor a concurrency means that all were sent at once.
    """
    if point.requests_offered_per_s is not None:
        return None if not point.in_flight else (max(1.0, point.in_flight), None)
    if point.num_completed is None:
        return None if point.concurrency is None else (max(1.0, point.concurrency), None)
    concurrency = max(1.0, min(point.concurrency or point.num_completed, point.num_completed))
    return concurrency, point.num_completed / concurrency


def _measured(point: LoadPoint) -> dict[Quantity, float]:
    """Means of the point within the range of times and rates that estimates know; TPOT by its definition where only E2E is there."""
    tpot, ttft, e2e, tokens = point.tpot.mean_s, point.ttft.mean_s, point.e2e.mean_s, point.mean_output_tokens or 0
    if tpot is None and ttft is not None and e2e is not None and tokens > 1:
        tpot = (e2e - ttft) / (tokens - 1)
    found: dict[Quantity, float] = {}
    if tpot is not None and tokens > 1 and LEAST_SECONDS <= tpot <= MOST_SECONDS:
        found["tpot"] = tpot
    if ttft is not None and LEAST_SECONDS <= ttft <= MOST_SECONDS:
        found["ttft"] = ttft
    rate = point.output_tokens_per_s
    if rate is not None and 1 / MOST_SECONDS <= rate <= 1 / LEAST_SECONDS * MOST_REQUESTS:
        found["throughput"] = rate
    return found


def _unusable(point: LoadPoint) -> str | None:
    """Why a point takes no part in the fit."""
    for name, tokens in (("prompt", point.mean_input_tokens), ("output", point.mean_output_tokens)):
        if tokens is None:
            return f"the mean {name} length is not in the file"
        if not 1 <= tokens <= MOST_TOKENS:
            return f"a mean {name} of {plain(tokens)} tokens is none that an estimate takes"
    load = _load(point)
    if load is not None and max(load[0], load[1] or 0) > MOST_TOKENS:
        return f"{plain(max(load[0], load[1] or 0))} requests are more than an estimate takes"
    contradictions = [note.message for note in disagreements(point, within="this point") if note.code in CONTRADICTIONS]
    if contradictions:
        return "; ".join(contradictions)
    if not _measured(point):
        return "neither a mean TPOT nor a mean TTFT nor an output rate is in the file"
    return None


def _absurd(row: Measurement) -> str | None:
    """Why no set-up like the one that is named gives such a figure."""
    predicted = row.predicted(row.performance.constants)
    for name, measured in row.measured.items():
        if not 1 / MOST_OFF < measured / predicted[name] < MOST_OFF:
            return f"{name} is {measured / predicted[name]:.2g} times the prediction: is it in the unit it is labelled with?"
    return None


def _other_model(points: Sequence[LoadPoint], named: str, names: tuple[str, ...]) -> list[Note]:
    """A note where the files name another model than the request, as far as names can tell."""
    known = {name.casefold().split("/")[-1] for name in (named, *names) if name}
    others = sorted({point.model for point in points if point.model and point.model.casefold().split("/")[-1] not in known})
    if not others:
        return []
    message = f"The files name the model {', '.join(others[:3])}; they are taken as measurements of {names[0]}."
    return [Note(code="model_of_other_name", message=message)]
