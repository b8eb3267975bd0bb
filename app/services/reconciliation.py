"""Use case: compare what an engine printed at its start with the planner's estimate."""

from typing import Annotated

from pydantic import Field, model_validator

from app.domain.catalog import Catalog
from app.domain.deployment import Deployment
from app.domain.engine_start import EngineStart, ReadStart
from app.domain.errors import UnknownName
from app.domain.kv_cache import resolve_kv_format
from app.domain.llm import Llm
from app.domain.memory import fit
from app.domain.provenance import Note
from app.domain.reconciliation import Estimate, changed_by, settings_as_printed
from app.domain.reconciliation_answer import ReconciliationAnswer, answer_reconciliation
from app.domain.value import Given
from app.importers.engine_log import read_log
from app.services.assumptions import deployment_defaults
from app.services.references import as_deployed, engine_of, resolve_gpu, resolve_served
from app.services.requests import GpuRef, ModelRef
from app.services.versions import versions_of

MAX_LOG_CHARS = 2**20


class ReconcileRequest(Given):
    """A start of an engine, and the deployment that it was meant to be."""

    model: ModelRef
    """The model."""
    gpu: GpuRef
    """The accelerator."""
    deployment: Deployment = Deployment()
    """How one replica runs; what the log prints goes before it."""
    log: Annotated[str, Field(min_length=1, max_length=MAX_LOG_CHARS)] | None = None
    """Start-up log of vLLM, SGLang, TensorRT-LLM or llama.cpp, as it was printed."""
    printed: EngineStart | None = None
    """Printed figures by name, beside a log or instead of one; they go before the log."""

    @model_validator(mode="after")
    def _something_printed(self) -> "ReconcileRequest":
        if self.log is None and (self.printed is None or not self.printed.model_fields_set):
            raise ValueError("give a log, or at least one printed figure")
        return self


def reconcile(catalog: Catalog, request: ReconcileRequest) -> ReconciliationAnswer:
    """Printed figures against estimated ones; raises PlannerError for unknown names, impossible layouts and logs without a start."""
    llm, gpu = resolve_served(catalog, request.model, request.deployment), resolve_gpu(catalog, request.gpu)
    read = _read(request)
    settings = settings_as_printed(request.deployment, read.start)

    def compute(deployment: Deployment) -> Estimate:
        deployment, _ = as_deployed(catalog, deployment, llm, gpu)
        found = fit(llm, gpu, deployment, engine_of(catalog, deployment))
        return Estimate(
            memory_bytes=found.memory_bytes,
            budget_bytes=found.budget_bytes,
            weights_bytes=found.weights_bytes_per_gpu,
            activation_bytes=found.terms.activation_bytes,
            cuda_graph_bytes=found.terms.cuda_graph_bytes,
            outside_bytes=found.terms.communication_bytes + found.terms.runtime_bytes,
            graphs_outside_bytes=found.terms.graphs_outside_bytes,
            kv_cache_bytes=found.kv_cache_bytes,
            kv_cache_tokens=found.capacity_tokens(),
            concurrency_ratio=found.concurrency_ratio(),
            verdict=found.verdict,
            kv_format=resolve_kv_format(llm, deployment.kv_cache),
            block_size_tokens=None if found.pool is None else found.pool.block_size_tokens,
            notes=found.notes,
        )

    return answer_reconciliation(
        llm.slug,
        gpu.slug,
        request.deployment,
        read,
        compute=compute,
        engine_versions=_versions(catalog, changed_by(request.deployment, settings)),
        notes=_other_model(catalog, llm, read.start.model),
        assumptions=deployment_defaults(llm, gpu, changed_by(request.deployment, settings)),
        versions=versions_of(catalog),
    )


def _read(request: ReconcileRequest) -> ReadStart:
    """What the log prints, with the figures that the request names laid over it."""
    given = request.printed or EngineStart()
    if request.log is None:
        return ReadStart(start=given, notes=[])
    read = read_log(request.log)
    named = {name: getattr(given, name) for name in sorted(given.model_fields_set) if getattr(given, name) is not None}
    notes = [
        Note(
            code="printed_otherwise",
            message=f"{name} is given as {value}, and the log prints {getattr(read.start, name)}: the former is used.",
        )
        for name, value in named.items()
        if getattr(read.start, name) not in (None, value)
    ]
    return ReadStart(start=read.start.model_copy(update=named), notes=[*read.notes, *notes])


def _versions(catalog: Catalog, deployment: Deployment) -> list[str]:
    """The first version of each range of rules that the catalog has for the engine."""
    return [engine.from_version for engine in catalog.engines if engine.engine == deployment.engine and engine.from_version]


def _other_model(catalog: Catalog, llm: Llm, printed: str | None) -> list[Note]:
    """A warning where the catalog knows the printed model as another one than the request's."""
    if printed is None:
        return []
    for name in (printed, printed.rstrip("/").rsplit("/", 1)[-1].lower()):
        try:
            known = catalog.model(name).slug
        except UnknownName:
            continue
        if known != llm.slug:
            message = f"The log is of {printed}, which the catalog knows as {known}; the request names {llm.slug}."
            return [Note(code="other_model", message=message)]
        return []
    return []
