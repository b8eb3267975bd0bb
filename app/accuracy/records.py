"""Recorded start-ups, and how each is read: what the record says in words and the request needs in numbers."""

from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import Field, ValidationError

from app.domain.value import Value

Outcome = Literal["started", "len_exceeds_kv", "oom_load", "no_kv_memory"]
Part = Literal["weights", "tokens", "kv_memory", "verdict"]
"""weights; tokens and concurrency; KV memory and all that follows from inputs; the verdict."""


class RecordsUnreadable(Exception):
    """A file of records that cannot be read; names the file and the fault."""


class StartUpRecord(Value):
    """One recorded start of an engine: its inputs, what it printed, how it ended. None is what the source does not say."""

    id: str
    engine: str
    engine_version: str | None
    model_hf_id: str
    quantization: str | None
    kv_cache_dtype: str | None
    gpu: str | None
    gpu_count: int | None
    gpu_memory_gib_total: float | None
    tp: int | None
    pp: int | None
    dp: int | None
    ep: int | None
    max_model_len: int | None
    gpu_memory_utilization: float | None
    max_num_seqs: int | None
    max_num_batched_tokens: int | None
    enforce_eager: bool | None
    weights_gib_per_gpu: float | None
    activation_gib: float | None
    cuda_graph_gib: float | None
    kv_available_gib_per_gpu: float | None
    kv_tokens: int | None
    kv_tokens_basis: str | None
    max_concurrency: float | None
    max_concurrency_at_len: int | None
    outcome: Outcome | None
    source_url: str
    notes: str
    model_slug: str | None
    gpu_slug: str | None
    apart: bool = False
    """Collected after the constants were fixed, and not looked at when a mechanism is sought."""


class Reading(Value):
    """What a person read from the record's words; applied after the general rules of `app.accuracy.expression`."""

    why: str
    """What in the record says so; for a case that is not expressed, the reason."""
    expressed: bool = True
    """False: no request of the planner means this start."""
    record: dict[str, Any] = Field(default_factory=dict)
    """Recorded figures in the units of the field (per GPU, per engine rank) where the record gives them in words."""
    model: str | dict[str, Any] | None = None
    """The model as the request names or describes it."""
    deployment: dict[str, Any] = Field(default_factory=dict)
    """Fields of the deployment."""
    leave_out: tuple[Part, ...] = ()
    """Parts that this record cannot judge."""


class ReadRecord(Value):
    """A record with its reading."""

    record: StartUpRecord
    """With the figures of its reading."""
    reading: Reading | None
    as_recorded: StartUpRecord | None = None
    """The fields as the file states them; None where the reading gives no figures."""


def readings_file(cases: Path) -> Path:
    """The readings beside a file of records: memory_cases.jsonl -> memory_cases.readings.yaml."""
    return cases.with_suffix(".readings.yaml")


def read_records(cases: Path) -> list[ReadRecord]:
    """Every record of a JSON Lines file with the reading beside it, if there is one; raises RecordsUnreadable."""
    try:
        records = [StartUpRecord.model_validate_json(line) for line in cases.read_text(encoding="utf-8").splitlines() if line.strip()]
        beside = readings_file(cases)
        given = yaml.safe_load(beside.read_text(encoding="utf-8")) if beside.exists() else None
        readings = {case: Reading.model_validate(reading) for case, reading in (given or {}).items()}
    except (OSError, yaml.YAMLError, ValidationError) as error:
        raise RecordsUnreadable(f"{cases}: {error}") from error
    if unknown := sorted(set(readings).difference(record.id for record in records)):
        raise RecordsUnreadable(f"{beside}: no record is called {', '.join(unknown)}")
    read = []
    for record in records:
        reading = readings.get(record.id)
        figures = reading.record if reading else {}
        read.append(
            ReadRecord(
                record=StartUpRecord.model_validate(dict(record) | figures),
                reading=reading,
                as_recorded=record if figures else None,
            )
        )
    return read
