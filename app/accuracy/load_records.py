"""Recorded loads: what was run, on what, and how fast it was; two files of records as one type."""

import json
import math
import re
from pathlib import Path
from typing import Any, Literal

from app.accuracy.records import RecordsUnreadable
from app.accuracy.serving_recipes import PublishedTables, ServingRecipes
from app.domain.batching import NATURAL_WIDTH_RATIO
from app.domain.performance import BENCHMARK_WAVES
from app.domain.value import Value

Load = Literal["closed", "burst", "static_batch", "open", "offline"]
"""closed: C requests at a time, many waves; burst: all at once, one wave, over HTTP; static_batch: one batch without a server; open: at a
rate; offline: as many as the engine takes."""
BENCHMARK_WIDTH_RATIO = 0.2 / 0.9
"""Width of lengths drawn evenly from 0.8 to 1.0 of the nominal ones / their mean."""
_ENGINES = {"vllm": "vllm", "sglang": "sglang", "tensorrt": "tensorrt-llm"}
_WEIGHTS = {"fp4": "nvfp4", "awq-int4": "awq", "int8-w8a8": "int8", "gptq-int8": "int8"}
_NARROW = {"fp8", "nvfp4", "mxfp4", "fp4"}


class LoadRecord(Value):
    """One recorded load on one replica. None is what the source does not say."""

    id: str
    source: str
    series: str
    model: str
    gpu: str
    load: Load
    deployment: dict[str, Any]
    input_tokens: float
    output_tokens: float
    concurrency: int | None
    request_rps: float | None
    num_waves: float | None
    num_requests: int | None = None
    """Requests of an offline run."""
    length_width_ratio: float
    output_tokens_per_s: float | None
    ttft_s: float | None
    tpot_s: float | None


class LeftOutLoad(Value):
    """A recorded load that no request of the planner means."""

    id: str
    reason: str


def read_loads(*files: Path, recipes: ServingRecipes | None = None) -> tuple[list[LoadRecord], list[LeftOutLoad]]:
    """The records of both files, serving points with the settings of their recipes; raises RecordsUnreadable naming file and line."""
    found: list[LoadRecord] = []
    left: list[LeftOutLoad] = []
    for file in files:
        try:
            lines = file.read_text(encoding="utf-8").splitlines()
        except OSError as error:
            raise RecordsUnreadable(f"{file}: {error.strerror}") from error
        for number, line in enumerate(lines, 1):
            try:
                row = json.loads(line)
                read = _serving_point(row, recipes) if "ttft_s_mean" in row else _throughput_case(row, recipes)
            except (ValueError, KeyError, TypeError) as error:
                raise RecordsUnreadable(f"{file}:{number}: {error}") from error
            if isinstance(read, LoadRecord):
                found.append(read)
            else:
                left.append(read)
    return _without_repeats(found), left


def _without_repeats(records: list[LoadRecord]) -> list[LoadRecord]:
    """One of several records of the same run: equal times on equal layouts, whatever the model is called (R1 and V3 are one shape)."""
    seen: dict[tuple[object, ...], LoadRecord] = {}
    for each in records:
        layout = tuple(each.deployment[name] for name in ("tp", "pp", "dp", "ep", "engine", "weights"))
        times = tuple(value and round(value, 6) for value in (each.output_tokens_per_s, each.ttft_s, each.tpot_s))
        seen.setdefault((each.gpu, layout, each.concurrency, each.input_tokens, each.output_tokens, times), each)
    return list(seen.values())


def _weights(model: str, written: str) -> str | None:
    """The format; None where it is the checkpoint's own."""
    if model.startswith("gpt-oss") or (model.startswith("kimi") and written == "int4"):
        return None
    return _WEIGHTS.get(written, written)


def _length_limit(row_input: float, row_output: float) -> int:
    """A length limit that benchmark scripts set: the nominal lengths and some more."""
    return math.ceil(1.25 * (row_input + row_output)) + 256


def _serving_point(row: dict[str, Any], recipes: ServingRecipes | None) -> LoadRecord:
    model, gpu, engine, precision = row["model_slug"], row["gpu_slug"], row["engine"], row["precision"]
    version = row["engine_version"] or ""
    return LoadRecord(
        id=row["id"],
        source="serving points",
        series=f"{model}|{gpu}|{engine}",
        model=model,
        gpu=gpu,
        load="closed",
        deployment={
            "tp": row["tp"],
            "dp": row["dp"],
            "pp": row["pp"] or 1,
            "ep": row["ep"],
            "weights": _weights(model, precision),
            "kv_cache": "auto" if precision == "bf16" else "fp8",
            "engine": engine,
            "engine_version": version if version[:1].isdigit() else None,
            "max_model_len_tokens": _length_limit(row["input_tokens"], row["output_tokens"]),
            **(recipes.settings_of(row) if recipes else {}),
        },
        input_tokens=row["input_tokens_mean"],
        output_tokens=row["output_tokens_mean"],
        concurrency=row["concurrency"],
        request_rps=None,
        num_waves=BENCHMARK_WAVES,
        length_width_ratio=BENCHMARK_WIDTH_RATIO if row["length_distribution"].startswith("uniform") else 0.0,
        output_tokens_per_s=None,
        ttft_s=row["ttft_s_mean"],
        tpot_s=row["tpot_s_mean"],
    )


def _unexpressed(row: dict[str, Any]) -> str | None:
    """Why no request means a row."""
    needed = ("model_slug", "gpu_slug", "tp", "isl_mean", "osl_mean", "weight_precision")
    if missing := [name for name in needed if row[name] is None]:
        return f"not recorded: {', '.join(missing)}"
    if row["spec_decode"] not in (None, "none"):
        return "speculative decoding with an acceptance that is not recorded"
    if row["prefix_cache"] is True or "prefix" in (row["series"] or "") or "shared-prefix" in row["length_distribution"]:
        return "prefix cache hits that are not recorded"
    if "pd_disagg" in row["kind"]:
        return "prefill and decode on different replicas"
    if row["load_mode"] == "open" and not row["request_rate_rps"]:
        return "a rate that is not recorded"
    return None


def _throughput_case(row: dict[str, Any], recipes: ServingRecipes | None) -> LoadRecord | LeftOutLoad:
    if reason := _unexpressed(row):
        return LeftOutLoad(id=row["id"], reason=reason)
    written = row["engine"].casefold()
    engine = next((name for begin, name in _ENGINES.items() if written.startswith(begin)), "generic")
    tp, pp, dp, gpus, model = row["tp"], row["pp"] or 1, row["dp"] or 1, row["gpu_count"], row["model_slug"]
    tables = (recipes.tables_of(row) if recipes else None) or PublishedTables(pages=())
    written_version = row["engine_version"] or ""
    version = re.match(r"v?(\d+\.\d+(?:\.\d+)?)", tables.versions.get(written_version, written_version))
    if dp > 1 and tp * dp * pp > gpus:
        tp = max(1, tp // dp)
    elif dp == 1 and tables.attention_dp_of_experts and "moe" in row["kind"]:
        tp, dp = 1, tp
    replicas = max(1, gpus // (tp * dp * pp))
    weights, narrow = row["weight_precision"], row["weight_precision"] in _NARROW
    kv = "fp8" if row["kv_precision"] == "fp8" or (row["kv_precision"] is None and engine == "tensorrt-llm" and narrow) else "auto"
    concurrency = None if row["concurrency"] is None else max(1, round(row["concurrency"] / replicas))
    load: Load = "static_batch" if row["load_mode"] == "offline" and concurrency else row["load_mode"]
    fixed = row["length_distribution"] in ("random-fixed", "fixed", "random") or row["length_distribution"].startswith("sonnet")
    return LoadRecord(
        id=row["id"],
        source="throughput cases",
        series=row["series"] or f"{model}|{row['gpu_slug']}|{engine}",
        model=model,
        gpu=row["gpu_slug"],
        load=load,
        deployment={
            "tp": tp,
            "pp": pp,
            "dp": dp,
            "ep": tp * dp if (row["ep"] or 1) > 1 or (tables.attention_dp_of_experts and "moe" in row["kind"]) else 1,
            "weights": _weights(model, weights),
            "kv_cache": kv,
            "engine": engine,
            "engine_version": None if version is None else version[1],
            "max_num_seqs": row["max_num_seqs"],
            "max_model_len_tokens": _length_limit(row["isl_mean"], row["osl_mean"]),
        },
        input_tokens=row["isl_mean"],
        output_tokens=max(1.0, row["osl_mean"]),
        concurrency=concurrency,
        request_rps=row["request_rate_rps"] and row["request_rate_rps"] / replicas,
        num_waves={"burst": 1, "static_batch": 1, "closed": BENCHMARK_WAVES}.get(load),
        num_requests=tables.requests_of(row) if load == "offline" else None,
        length_width_ratio=0.0 if fixed else NATURAL_WIDTH_RATIO,
        output_tokens_per_s=row["output_tok_s_total"] and row["output_tok_s_total"] / replicas,
        ttft_s=_seconds(row["ttft_ms_mean"], row["ttft_ms_p50"]),
        tpot_s=_seconds(row["tpot_ms_mean"], row["tpot_ms_p50"]),
    )


def _seconds(*milliseconds: float | None) -> float | None:
    """The first figure that is recorded [s]."""
    return next((value / 1000 for value in milliseconds if value), None)
