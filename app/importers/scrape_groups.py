"""Which engine a series belongs to: the model, the pod or host, and the number of the engine behind one endpoint."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from app.domain.errors import InvalidInput
from app.importers.scrape_map import ScrapeMap
from app.importers.scrape_text import Exposition, Labels
from app.importers.scrape_time import Fall, fallen
from app.importers.scrape_window import Point, Points

MODEL_LABELS = ("model_name", "model", "served_model_name", "gen_ai_request_model", "gen_ai_response_model")
INSTANCE_LABELS = frozenset(
    (
        "cluster",
        "namespace",
        "exported_namespace",
        "pod",
        "pod_name",
        "kubernetes_pod_name",
        "exported_pod",
        "instance",
        "exported_instance",
        "Hostname",
        "hostname",
        "host",
        "replica",
        "ReplicaId",
        "WorkerId",
        "worker_id",
    )
)
"""Labels that scrapers, exporters and Ray add and that tell engines apart."""
MAX_NAMED_MODELS = 10


class Engine(NamedTuple):
    """The series of one engine."""

    name: str
    points: Points


class Grouped(NamedTuple):
    """The series of a text by engine, and all of them."""

    engines: Sequence[Engine]
    whole: Points
    """All series, those too that several engines behind one endpoint share."""
    restarted: Sequence[tuple[str, Fall]]
    """Pods or hosts whose counters fell: they are left out of the others."""
    new: Sequence[str]
    """Engines that the first scrape does not hold: what they did before it is not known, so they are left out of the others."""
    gone: Sequence[str]
    """Pods or hosts that the last scrape does not hold."""


def one_model(of: ScrapeMap, text: Exposition, model_name: str | None, *, pointer: str) -> str | None:
    """The model to read; raises InvalidInput where the text is of several and the caller names none, or one that is not among them."""
    named = (labels for name in text.series.keys() & of.named for labels in text.series[name])
    models = sorted({value for labels in named for label, value in labels if label in MODEL_LABELS and value})
    if model_name is not None and model_name in models:
        return model_name
    shown = ", ".join(models[:MAX_NAMED_MODELS]) + ("…" if len(models) > MAX_NAMED_MODELS else "")
    if model_name is not None:
        detail = f"The text holds no series of model {model_name[:100]!r}; it holds {shown or 'none that names its model'}."
        raise InvalidInput(detail, field=f"{pointer}/model_name", value=model_name[:100], expected=shown or "no model_name")
    if len(models) > 1:
        raise InvalidInput(
            f"The text holds series of several models: {shown}.", field=f"{pointer}/model_name", value=None, expected=f"one of {shown}"
        )
    return models[0] if models else None


def grouped(of: ScrapeMap, texts: Sequence[Exposition], model: str | None) -> Grouped:
    """The series of the last text with their values in the first, by engine; in the first only series of the model, or of none, count."""
    instances: dict[Labels, dict[str | None, dict[str, dict[Labels, Point]]]] = {}
    before = texts[0].series if len(texts) > 1 else {}
    for name, values in texts[-1].series.items():
        earlier = before.get(name, {})
        for labels, after in values.items():
            given = dict(labels)
            if _is_of(model, given) and of.takes(given):
                engines = instances.setdefault(_instance(labels), {})
                engine = next((given[label] for label in of.engine_labels if given.get(label)), None)
                engines.setdefault(engine, {}).setdefault(name, {})[labels] = Point(earlier.get(labels), after)
    found: list[Engine] = []
    restarted: list[tuple[str, Fall]] = []
    new: list[str] = []
    whole: dict[str, dict[Labels, Point]] = {}
    for instance, by_engine in sorted(instances.items()):
        if not any(name in of.named for points in by_engine.values() for name in points):
            continue
        fall = fallen(of.counters, _merged(by_engine.values()))
        if fall is not None:
            restarted.append((_name(instance, "", None), fall))
            continue
        numbered: Sequence[str | None] = sorted(engine for engine in by_engine if engine is not None)
        shared = by_engine.get(None, {})
        for engine in numbered or [None]:
            own = _lowest_rank(of, by_engine[engine])
            name = _name(instance, of.engine_labels[0] if engine else "", engine)
            if before and all(point.before is None for values in own.values() for point in values.values()):
                new.append(name)
                continue
            found.append(Engine(name, _merged([own, shared]) if len(numbered) == 1 else own))
            _add(whole, own)
        if numbered:
            _add(whole, shared)
    gone = {_instance(labels) for name in before.keys() & of.named for labels in before[name] if _is_of(model, dict(labels))}
    return Grouped(found, whole, restarted, new, [_name(instance, "", None) for instance in sorted(gone - instances.keys())])


def _is_of(model: str | None, given: Mapping[str, str]) -> bool:
    named = [given[label] for label in MODEL_LABELS if given.get(label)]
    return model is None or not named or model in named


def _instance(labels: Labels) -> Labels:
    return tuple((name, value) for name, value in labels if name in INSTANCE_LABELS and value)


def _lowest_rank(of: ScrapeMap, points: dict[str, dict[Labels, Point]]) -> dict[str, dict[Labels, Point]]:
    """Only the series of the lowest rank, and those without a rank."""
    if not of.rank_labels:
        return points
    ranks = {rank for values in points.values() for labels in values if (rank := _rank(of, labels)) is not None}
    if len(ranks) < 2:
        return points
    lowest = min(ranks)
    kept = {
        name: {labels: point for labels, point in values.items() if _rank(of, labels) in (None, lowest)} for name, values in points.items()
    }
    return {name: values for name, values in kept.items() if values}


def _rank(of: ScrapeMap, labels: Labels) -> tuple[int, ...] | None:
    given = dict(labels)
    ranks = [given[label] for label in of.rank_labels if label in given]
    return tuple(int(rank) if rank.isdecimal() else 0 for rank in ranks) if ranks else None


def _merged(each: Iterable[Points]) -> dict[str, dict[Labels, Point]]:
    merged: dict[str, dict[Labels, Point]] = {}
    for points in each:
        _add(merged, points)
    return merged


def _add(merged: dict[str, dict[Labels, Point]], points: Points) -> None:
    for name, values in points.items():
        merged.setdefault(name, {}).update(values)


def _name(instance: Labels, label: str, engine: str | None) -> str:
    parts = [value for _, value in instance] + ([f"{label} {engine}"] if engine else [])
    return ", ".join(parts)[:200] or "engine"
