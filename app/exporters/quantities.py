"""Units by the names of fields, and numbers in the units that people use."""

from collections.abc import Sequence

from app.domain.units import GB, KB, MB, TB, unit_of

_STATISTICS = frozenset({"mean", "p50", "p90", "p95", "p99", "low", "high", "value"})
"""Names of members that have the unit of the field which holds them."""
_DECIMAL = ((TB, "TB"), (GB, "GB"), (MB, "MB"), (KB, "kB"))
_BINARY = {"TB": (1 << 40, "TiB"), "GB": (1 << 30, "GiB"), "MB": (1 << 20, "MiB"), "kB": (1 << 10, "KiB")}
_FLOPS = ((1e15, "PFLOP"), (1e12, "TFLOP"), (1e9, "GFLOP"))
LEGEND = "GB = 10^9 bytes, GiB = 2^30 bytes (likewise kB/KiB, MB/MiB, TB/TiB); a ratio of 1 is 100 %."


def unit_at(path: Sequence[str]) -> str:
    """Unit of the field at a path of names; of a statistic, that of the field which holds it."""
    names = [name for name in path if not name.isdecimal()]
    while len(names) > 1 and names[-1] in _STATISTICS:
        names.pop()
    return unit_of(names[-1]) if names else ""


def for_people(value: float, unit: str) -> str:
    """The number in units that people use, each said: `70 GB = 65.19 GiB`; empty where the number itself says it best."""
    base, slash, per = unit.partition("/")
    match base:
        case "bytes":
            return _bytes(value, slash + per)
        case "FLOP":
            return _scaled(value, _FLOPS, slash + per)
        case "s" if not slash:
            return _seconds(value)
        case "ratio":
            return f"{value * 100:.4g} %" if 0 < abs(value) <= 1 else ""
        case "USD":
            return f"${value:,.2f}{slash}{per}" if abs(value) >= 1 else f"${value:.4g}{slash}{per}"
        case _:
            return f"{value:,.0f}" if 10_000 <= abs(value) < 1e15 else ""


def _bytes(value: float, per: str) -> str:
    for size, name in _DECIMAL:
        if abs(value) >= size:
            binary, binary_name = _BINARY[name]
            decimal = f"{value / size:.4g} {name}{per}"
            return decimal if per.startswith("/s") else f"{decimal} = {value / binary:.4g} {binary_name}{per}"
    return ""


def _scaled(value: float, scales: Sequence[tuple[float, str]], per: str) -> str:
    for size, name in scales:
        if abs(value) >= size:
            return f"{value / size:.4g} {name}{per}"
    return ""


def _seconds(value: float) -> str:
    size = abs(value)
    if size == 0 or 1 <= size < 120:
        return ""
    if size < 1e-3:
        return f"{value * 1e6:.4g} µs"
    if size < 1:
        return f"{value * 1e3:.4g} ms"
    return f"{value / 60:.4g} min" if size < 7200 else f"{value / 3600:.4g} h"
