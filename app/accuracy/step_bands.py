"""The ranges that answers state: how far left-out predictions were from what was recorded, by engine and kind of model."""

import math
from collections.abc import Iterable, Iterator, Sequence

from app.accuracy.performance import SpeedComparison
from app.domain.step_constants import Band

HELD_SHARE = 0.83
"""Share of the rows of a class that its range holds: between the 75 and 90 % that are asked for."""
LEAST_ROWS = 15
"""Classes with fewer rows share the range of their kind, or of all."""


def bands_of(comparisons: Iterable[SpeedComparison]) -> Iterator[Band]:
    """Ranges, those of single classes first: 1/x to x, x the HELD_SHARE quantile of exp |ln(predicted / recorded)| of left-out rows.

    Output rates under a rate of requests are left out: what arrives and is served has no range.
    """
    told = [row for row in comparisons if not (row.quantity == "throughput" and row.load == "open")]
    engines = sorted({row.engine for row in told})
    kinds = sorted({row.kind for row in told})
    for quantity in ("tpot", "ttft", "throughput"):
        for fitted in (True, False):
            own = [row for row in told if (row.quantity, row.fitted) == (quantity, fitted)]
            classes = [(engine, kind) for engine in engines for kind in kinds] + [(None, kind) for kind in kinds] + [(None, None)]
            for engine, kind in classes:
                rows = [row for row in own if engine in (None, row.engine) and kind in (None, row.kind)]
                if len(rows) >= LEAST_ROWS:
                    reach = _reach(rows)
                    yield Band(
                        engine=engine,
                        kind=kind,
                        fitted=fitted,
                        quantity=quantity,
                        low_ratio=float(f"{1 / reach:.3g}"),
                        high_ratio=float(f"{reach:.3g}"),
                        num_rows=len(rows),
                    )


def _reach(rows: Sequence[SpeedComparison]) -> float:
    distances = sorted(abs(math.log(row.predicted_ratio)) for row in rows)
    return math.exp(distances[math.ceil(HELD_SHARE * len(distances)) - 1])


def band_lines(bands: Iterable[Band]) -> Iterator[str]:
    """The `bands` of the file of constants."""
    yield "bands:"
    for band in bands:
        told = band.model_dump(mode="json", exclude_none=True)
        yield "- {" + ", ".join(f"{name}: {str(value).lower() if isinstance(value, bool) else value}" for name, value in told.items()) + "}"
