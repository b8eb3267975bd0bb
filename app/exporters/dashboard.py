"""The dashboard of a plan as Grafana imports it: https://grafana.com/docs/grafana/latest/dashboards/build-dashboards/view-dashboard-json-model/"""

from collections.abc import Mapping, Sequence

from pydantic import JsonValue

from app.domain.json_difference import JsonObject
from app.domain.latency_tail import LEVELS
from app.domain.monitoring import Limits, Panel, PanelGroup
from app.exporters.engine_metrics import WINDOW, EngineMetrics

GROUPS: Mapping[PanelGroup, str] = {
    "experience": "Experience",
    "load_and_scheduling": "Load and scheduling",
    "gpu_and_memory": "GPU and memory",
    "business_and_cost": "Business and cost",
}
SCHEMA_VERSION = 39
_WIDTH, _HEIGHT, _COLUMNS = 8, 8, 3
MIB_BYTES = 2**20
HOUR_S = 3600
_LEVELS: Mapping[str, float] = {"p50": 0.5, **{str(level): share for level, share in LEVELS.items()}}


def panels(names: EngineMetrics, limits: Limits) -> list[Panel]:
    """The charts in their four groups."""
    return [*_experience(names, limits), *_load(names, limits), *_gpu(names, limits), *_business(names, limits)]


def dashboard(charts: Sequence[Panel], *, title: str, uid: str) -> JsonObject:
    """The JSON model; the data source is asked for at import."""
    drawn: list[JsonValue] = []
    y = 0
    for group, heading in GROUPS.items():
        drawn.append(
            {"id": len(drawn) + 1, "type": "row", "title": heading, "collapsed": False, "panels": [], "gridPos": _place(0, y, 24, 1)}
        )
        y += 1
        own = [chart for chart in charts if chart.group == group]
        for index, chart in enumerate(own):
            row, column = divmod(index, _COLUMNS)
            place = _place(column * _WIDTH, y + row * _HEIGHT, _WIDTH, _HEIGHT)
            drawn.append(_panel(chart, len(drawn) + 1, place))
        y += -(-len(own) // _COLUMNS) * _HEIGHT
    source: JsonObject = {
        "name": "DS_PROMETHEUS",
        "label": "Prometheus",
        "type": "datasource",
        "pluginId": "prometheus",
        "pluginName": "Prometheus",
    }
    return {
        "__inputs": [source],
        "title": title,
        "uid": uid,
        "schemaVersion": SCHEMA_VERSION,
        "time": {"from": "now-6h", "to": "now"},
        "refresh": "30s",
        "templating": {"list": []},
        "panels": drawn,
    }


def _place(x: int, y: int, width: int, height: int) -> JsonObject:
    return {"x": x, "y": y, "w": width, "h": height}


def _panel(chart: Panel, number: int, place: JsonObject) -> JsonObject:
    steps: list[JsonValue] = [{"color": "green", "value": None}]
    if chart.limit is not None:
        steps.append({"color": "red", "value": chart.limit})
    return {
        "id": number,
        "type": "timeseries",
        "title": chart.title,
        "datasource": {"type": "prometheus", "uid": "${DS_PROMETHEUS}"},
        "gridPos": place,
        "fieldConfig": {
            "defaults": {
                "unit": chart.unit,
                "thresholds": {"mode": "absolute", "steps": steps},
                "custom": {"thresholdsStyle": {"mode": "off" if chart.limit is None else "line"}},
            },
            "overrides": [],
        },
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}},
        "targets": [
            {"refId": chr(ord("A") + index), "expr": query, "legendFormat": legend} for index, (legend, query) in enumerate(chart.queries)
        ],
    }


def _experience(names: EngineMetrics, limits: Limits) -> list[Panel]:
    times = {
        "ttft": ("Time to first token", names.ttft),
        "tpot": ("Time per output token", names.tpot),
        "e2e": ("Whole request", names.e2e),
    }
    charts = []
    for time, (title, metric) in times.items():
        queries = [(level.upper(), names.quantile(metric, share)) for level, share in _LEVELS.items()]
        known = [limit for level in LEVELS if (limit := getattr(limits.slo, f"{time}_{level}_s", None)) is not None]
        charts.append(_chart("experience", title, "s", queries, min(known, default=None)))
    failed = [("failed or aborted", names.failed_ratio)]
    return [*charts, _chart("experience", "Requests that fail", "percentunit", failed)]


def _load(names: EngineMetrics, limits: Limits) -> list[Panel]:
    group: PanelGroup = "load_and_scheduling"
    rates = [("requests", names.rate(names.finished))]
    tokens = [("input", names.rate(names.input_tokens)), ("output", names.rate(names.output_tokens))]
    finished = names.rate(names.finished)
    lengths = [("input", f"{names.rate(names.input_tokens)} / {finished}"), ("output", f"{names.rate(names.output_tokens)} / {finished}")]
    queue = [(level.upper(), names.quantile(names.queue_time, share)) for level, share in LEVELS.items()]
    held = [("running", f"avg({names.running})"), ("waiting", f"avg({names.waiting})")]
    places = None if not limits.safe_concurrency else limits.safe_concurrency / limits.num_ranks
    return [
        _chart(group, "Requests per second", "reqps", rates, limits.capacity_rps),
        _chart(group, "Tokens per second", "short", tokens),
        _chart(group, "Requests in an engine", "short", held, places),
        _chart(group, "Queue time", "s", queue),
        _chart(group, "Mean lengths", "short", lengths),
        _chart(group, "Engines that report", "short", [("engines", names.num_engines)]),
    ]


def _gpu(names: EngineMetrics, limits: Limits) -> list[Panel]:
    group: PanelGroup = "gpu_and_memory"
    busy = [
        ("compute: tensor pipes", "avg(DCGM_FI_PROF_PIPE_TENSOR_ACTIVE)"),
        ("memory bandwidth", "avg(DCGM_FI_PROF_DRAM_ACTIVE)"),
        ("any kernel", "avg(DCGM_FI_PROF_GR_ENGINE_ACTIVE)"),
    ]
    return [
        _chart(group, "KV cache in use", "percentunit", [("fullest", names.gauge(names.kv_usage))], limits.safety_ratio),
        _chart(group, "Preemptions per second", "short", [("preempted", names.rate(names.preemptions))]),
        _chart(group, "What accelerators do", "percentunit", busy),
        _chart(group, "Least free memory", "bytes", [("free", f"min(DCGM_FI_DEV_FB_FREE) * {MIB_BYTES}")]),
        _chart(group, "Power of an accelerator", "watt", [("mean", "avg(DCGM_FI_DEV_POWER_USAGE)")]),
        _chart(group, "Driver errors (XID)", "short", [("last XID", "max(DCGM_FI_DEV_XID_ERRORS)")]),
    ]


def _business(names: EngineMetrics, limits: Limits) -> list[Panel]:
    group: PanelGroup = "business_and_cost"
    charts = [_chart(group, "Prompt tokens from the prefix cache", "percentunit", [("served", names.hit_ratio)])]
    if limits.acceptance_ratio is not None:
        charts.append(_chart(group, "Drafts accepted", "percentunit", [("accepted", names.acceptance)]))
    charts.append(_chart(group, "Requests per hour", "short", [("requests", f"{names.rate(names.finished)} * {HOUR_S}")]))
    if limits.usd_per_gpu_hour is not None and limits.gpus is not None:
        usd_per_s = f"{limits.usd_per_gpu_hour * limits.gpus / HOUR_S:.6g}"
        output = names.rate(names.output_tokens)
        tokens = f"({names.rate(names.input_tokens)} + {output})"
        cost = [
            ("input and output", f"{usd_per_s} / {tokens} * 1e6"),
            ("output alone", f"{usd_per_s} / {names.rate(names.output_tokens)} * 1e6"),
        ]
        charts += [
            _chart(group, f"USD per million tokens at the planned fleet ({WINDOW} rates)", "currencyUSD", cost),
            _chart(group, "USD per request", "currencyUSD", [("finished", f"{usd_per_s} / {names.rate(names.finished)}")]),
        ]
    return charts


def _chart(group: PanelGroup, title: str, unit: str, queries: Sequence[tuple[str, str]], limit: float | None = None) -> Panel:
    return Panel(group=group, title=title, unit=unit, queries=queries, limit=limit)
