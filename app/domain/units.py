"""The unit vocabulary of field names, and numbers written for people.

Every numeric field of a domain or request type ends in one of `UNIT_SUFFIXES`, begins with one of `UNIT_PREFIXES`, counts things
(`NAMED_COUNTS`) or measures a model's shape (`SHAPE_SUFFIXES`, the terms of the Hugging Face configurations). A test walks all types.
"""

import re
from functools import cache

UNIT_SUFFIXES = (
    "_bytes",
    "_bytes_per_s",
    "_bytes_per_token",
    "_bytes_per_sequence",
    "_bytes_per_gpu",
    "_tokens",
    "_tokens_per_s",
    "_s",
    "_per_s",
    "_per_minute",
    "_per_hour",
    "_rps",
    "_flops",
    "_flops_per_s",
    "_flops_per_token",
    "_ratio",
    "_usd",
    "_watts",
    "_iterations",
    "_steps",
    "_concurrency",
)
UNIT_PREFIXES = ("num_", "max_num_", "usd_per_", "bytes_per_", "tokens_per_")
SHAPE_SUFFIXES = ("_size", "_dim", "_rank", "_params", "_heads", "_layers")
NAMED_COUNTS = frozenset(
    {
        "tp",
        "pp",
        "dp",
        "dcp",
        "ep",
        "params",
        "replicas",
        "replicas_exact",
        "gpus",
        "nodes",
        "concurrency",
        "recommended_max_num_seqs",
        "gpus_per_node",
        "gpus_per_replica",
        "replicas_per_node",
        "nodes_per_replica",
        "spare_replicas",
        "surge_replicas",
        "unavailable_replicas",
        "one_pool_replicas",
        "attempts_per_task",
        "requests_per_task",
        "smallest_tp",
        "max_candidates",
        "max_deployments",
        "max_gpus_per_replica",
        "compress_ratio",
    }
)

_BASE_UNIT = re.compile(r"(?:^|_)(?<!per_)(bytes|tokens|flops|usd|watts|ratio|requests|rps|s)((?:_per_[a-z0-9_]+)?)$")
_RATE = re.compile(r"_per_(s|minute)$")
_WRITTEN = {"usd": "USD", "flops": "FLOP", "rps": "requests/s"}

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
KB, MB, GB, TB = 10**3, 10**6, 10**9, 10**12


@cache
def unit_of(name: str) -> str:
    """Unit that the name of a field stands for, as `bytes/token`; empty for counts and for what is no quantity.

    >>> unit_of("usd_per_million_input_tokens")
    'USD/million input tokens'
    """
    if name.startswith("num_"):
        return ""
    found = _BASE_UNIT.search(name)
    if found is None:
        rate = _RATE.search(name)
        return f"1/{rate[1]}" if rate else ""
    base, per = found.groups()
    return _WRITTEN.get(base, base) + per.replace("_per_", "/").replace("_", " ")


def plain(number: int | float) -> str:
    """A number as it is typed into a calculator: integers in full, other numbers to ten significant digits."""
    if isinstance(number, int):
        return str(number)
    if -1e10 < number < 1e10:  # whole or not, ten digits say it
        return f"{number:.10g}"
    return f"{number:.0f}" if number.is_integer() and abs(number) < 1e15 else f"{number:.10g}"


def exact(number: float) -> int | float:
    """The same number, as an integer when it is whole, so that bytes do not print as 327680.0."""
    return int(number) if number == int(number) else number


def tidy(number: float) -> float:
    """The same number without binary noise beyond twelve significant digits: 299.28000000000003 is 299.28."""
    return float(f"{number:.12g}")


def gigabytes(num_bytes: float) -> str:
    """Bytes in decimal and binary units, each said: `50.5 GB (47.0 GiB)`."""
    return f"{_four_figures(num_bytes / GB)} GB ({_four_figures(num_bytes / GIB)} GiB)"


def _four_figures(value: float) -> str:
    """Four significant figures, all digits of what is larger."""
    return f"{value:,.0f}" if abs(value) >= 9999.5 else f"{value:.4g}"


def seconds(value: float) -> str:
    """A time in the unit people would use."""
    return f"{value:.3g} s" if value >= 1 else f"{value * 1000:.3g} ms"
