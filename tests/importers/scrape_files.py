"""The scrapes of `tests/importers/scrapes`."""

import json
from pathlib import Path
from typing import Any

from app.importers.scrapes import Scraped, read_scrapes

FOLDER = Path(__file__).parent / "scrapes"
SECONDS = 60.0
SITUATIONS = ("healthy", "saturated", "prefill_flooded", "cuda_graph_gap")


def text(name: str) -> str:
    return (FOLDER / f"{name}.txt").read_text(encoding="utf-8")


def pair(name: str) -> list[str]:
    return [text(f"{name}_{when}") for when in ("before", "after")]


def read(*texts: str, seconds: float | None = None, model_name: str | None = None) -> Scraped:
    return read_scrapes(texts, seconds, pointer="/prometheus", model_name=model_name)


def truth(situation: str) -> dict[str, Any]:
    """What the simulated engine did between the two scrapes."""
    known: dict[str, dict[str, Any]] = json.loads((FOLDER / "truth.json").read_text(encoding="utf-8"))
    return known[situation]
