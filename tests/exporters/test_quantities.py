"""Units by field names, and numbers for people."""

import pytest

from app.exporters.quantities import for_people, unit_at


@pytest.mark.parametrize(
    ("path", "unit"),
    [
        (("weights_bytes",), "bytes"),
        (("bytes_per_token",), "bytes/token"),
        (("kv_bytes_per_token_per_gpu",), "bytes/token/gpu"),
        (("bytes_per_sequence_per_gpu",), "bytes/sequence/gpu"),
        (("workload", "input_tokens", "p95"), "tokens"),
        (("by_context", "0", "context_tokens"), "tokens"),
        (("output_tokens_per_s",), "tokens/s"),
        (("peak_flops_per_s",), "FLOP/s"),
        (("usd_per_million_input_tokens",), "USD/million input tokens"),
        (("replica_usd_per_hour",), "USD/hour"),
        (("peak_rps",), "requests/s"),
        (("preemptions_per_s",), "1/s"),
        (("ttft_p95_s",), "s"),
        (("utilization_ratio",), "ratio"),
        (("num_draft_tokens",), ""),
        (("tp",), ""),
        (("mean",), ""),
        (("replicas",), ""),
        ((), ""),
    ],
)
def test_unit_is_read_off_the_name(path: tuple[str, ...], unit: str) -> None:
    assert unit_at(path) == unit


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (70_000_000_000, "bytes", "70 GB = 65.19 GiB"),
        (327_680, "bytes/token", "327.7 kB/token = 320 KiB/token"),
        (-5_000_000, "bytes", "-5 MB = 4.768 MiB".replace("= 4", "= -4")),
        (512, "bytes", ""),
        (3.35e12, "bytes/s", "3.35 TB/s"),
        (9.89e14, "FLOP/s", "989 TFLOP/s"),
        (0.04, "s", "40 ms"),
        (2e-5, "s", "20 µs"),
        (3, "s", ""),
        (0, "s", ""),
        (600, "s", "10 min"),
        (86400, "s", "24 h"),
        (0.84, "ratio", "84 %"),
        (7.3, "ratio", ""),
        (1234.5, "USD/hour", "$1,234.50/hour"),
        (0.01234, "USD/million output tokens", "$0.01234/million output tokens"),
        (1_234_567, "tokens", "1,234,567"),
        (40, "", ""),
    ],
)
def test_number_for_people(value: float, unit: str, text: str) -> None:
    assert for_people(value, unit) == text
