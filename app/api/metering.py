"""Metrics of the HTTP side: FastAPI's own instruments, read by Prometheus from a registry of this application."""

from typing import Any

from fastapi.telemetry import TelemetryConfig
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.resources import Resource
from prometheus_client import CollectorRegistry

from app.api.request_edge import QUIET_PATHS


def request_metrics() -> tuple[CollectorRegistry, TelemetryConfig]:
    """A registry for `/metrics` and the telemetry setting that fills it; labels are route templates, so their number is bounded."""
    registry = CollectorRegistry()
    reader = PrometheusMetricReader(disable_target_info=True, scope_info_enabled=False, registry=registry)
    provider = MeterProvider(metric_readers=[reader], resource=Resource.get_empty(), shutdown_on_exit=False)
    telemetry: TelemetryConfig = {"meter_provider": provider, "tracing": True, "logs": False, "exclude": _is_quiet}
    return registry, telemetry


def _is_quiet(scope: Any) -> bool:
    return scope["path"] in QUIET_PATHS
