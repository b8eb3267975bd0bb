"""Every name that a rule may compare: metrics, families of percentiles, figures derived from several metrics.

All arithmetic of the diagnosis is behind these names, so that rules hold none.
"""

from collections.abc import Mapping

from app.domain.metrics import Metrics
from app.domain.observation import Absent, Observation, Reading, Sight, Symptom
from app.domain.symptoms_batch import BATCH_SYMPTOMS
from app.domain.symptoms_change import CHANGE_SYMPTOMS
from app.domain.symptoms_flow import FLOW_SYMPTOMS
from app.domain.symptoms_graphs import GRAPH_SYMPTOMS
from app.domain.symptoms_host import HOST_SYMPTOMS
from app.domain.symptoms_latency import LATENCY_SYMPTOMS
from app.domain.symptoms_limits import LIMIT_SYMPTOMS
from app.domain.symptoms_outside import OUTSIDE_SYMPTOMS
from app.domain.symptoms_slowdown import SLOWDOWN_SYMPTOMS


def read(symptom: str, observation: Observation) -> Sight:
    """The readings of a symptom (several for a family of percentiles), or what is missing; raises KeyError for a name outside SYMPTOMS."""
    seen = observation._seen
    if symptom not in seen:  # many rules ask for the same symptom
        seen[symptom] = SYMPTOMS[symptom](observation)
    return seen[symptom]


def _metric(name: str) -> Symptom:
    def sight(observation: Observation) -> Sight:
        value = observation.metrics.get(name)
        return Absent((name,)) if value is None else (Reading(name, value),)

    return sight


SYMPTOMS: Mapping[str, Symptom] = {
    **{name: _metric(name) for name in Metrics.model_fields},
    **LATENCY_SYMPTOMS,
    **BATCH_SYMPTOMS,
    **SLOWDOWN_SYMPTOMS,
    **OUTSIDE_SYMPTOMS,
    **HOST_SYMPTOMS,
    **LIMIT_SYMPTOMS,
    **GRAPH_SYMPTOMS,
    **FLOW_SYMPTOMS,
    **CHANGE_SYMPTOMS,
}
"""The symptoms by name; a derived figure replaces the metric of the same name, of which it makes more."""
