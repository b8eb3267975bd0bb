"""Recorded incidents, and the diagnosis request that each one's numbers and settings express."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import Field, ValidationError

from app.accuracy.records import RecordsUnreadable, readings_file
from app.domain.rule import Bottleneck
from app.domain.value import Value
from app.services.diagnosis import DiagnoseRequest

Sufficiency = Literal["alone", "with_evidence", "no"]
"""Whether the cause can be named from the request, only from request and evidence, or not at all."""


class Incident(Value):
    """A public incident with a known outcome: what was seen, and what it turned out to be."""

    id: str
    source_url: str
    engine: str
    metrics: Mapping[str, Any]
    baseline_metrics: Mapping[str, Any]
    config: Mapping[str, Any]
    workload: Mapping[str, Any]
    symptom: str
    true_cause: str
    cause_class: Bottleneck
    secondary_class: Bottleneck | None
    discriminating_evidence: str
    fix: str
    confidence: Literal["high", "medium", "low"]
    cause_status: str
    apart: bool = False
    """Not looked at by whoever writes rules."""


class IncidentReading(Value):
    """What a person read from the record: the request, and whether it is enough."""

    why: str
    """How words and numbers of the record became the request; where it does not suffice, what is missing."""
    suffices: Sufficiency
    """Whether a senior on-call engineer, given only these numbers, could name the cause."""
    request: Mapping[str, Any]
    """The request that metrics, baseline, configuration, workload and symptom of the record state."""
    evidence: Mapping[str, Mapping[str, Any]] = Field(default_factory=dict)
    """What the record measured further to tell the cause apart; laid over the objects of the request, field by field."""


class ReadIncident(Value):
    """An incident with its reading."""

    incident: Incident
    reading: IncidentReading

    def request(self, *, with_evidence: bool) -> DiagnoseRequest:
        """The request of this incident, with or without what told the cause apart."""
        laid = dict(self.reading.request)
        for name, fields in self.reading.evidence.items() if with_evidence else ():
            laid[name] = {**laid.get(name, {}), **fields}
        return DiagnoseRequest.model_validate(laid)

    def suffices(self, *, with_evidence: bool) -> bool:
        """Whether that request is enough to name the cause."""
        return self.reading.suffices == "alone" or (with_evidence and self.reading.suffices == "with_evidence")


def read_incidents(cases: Path) -> list[ReadIncident]:
    """Every incident of a JSON Lines file with its reading beside it; raises RecordsUnreadable, also where either is missing."""
    beside = readings_file(cases)
    try:
        incidents = [Incident.model_validate_json(line) for line in cases.read_text(encoding="utf-8").splitlines() if line.strip()]
        given = yaml.safe_load(beside.read_text(encoding="utf-8")) or {}
        readings = {case: IncidentReading.model_validate(reading) for case, reading in given.items()}
    except (OSError, yaml.YAMLError, ValidationError) as error:
        raise RecordsUnreadable(f"{cases}: {error}") from error
    if odd := sorted(set(readings) ^ {incident.id for incident in incidents}):
        raise RecordsUnreadable(f"{beside}: {', '.join(odd)} is not in both files")
    return [ReadIncident(incident=incident, reading=readings[incident.id]) for incident in incidents]
