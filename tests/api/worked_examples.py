"""The worked figures of the source texts, and how an answer is held against one."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = {item["id"]: item for item in json.loads((Path(__file__).parent / "worked_examples.json").read_text())["examples"]}
Ask = Callable[..., dict[str, Any]]
GB, GIB = 10**9, 2**30
LLAMA_70B = {"params": 70e9, "num_layers": 80, "num_kv_heads": 8, "head_dim": 128, "num_attention_heads": 64}


def example(name: str) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any], float]:
    """(inputs, exact figures, stated figures, tolerance) of an example."""
    item = EXAMPLES[name]
    return item["inputs"], item["exact"], item.get("stated", {}), item.get("stated_tolerance", 0)


def agrees(value: float, exact: float, stated: float | None = None, tolerance: float = 0, digits: int | None = None) -> None:
    assert (round(value, digits) if digits is not None else value) == exact
    if stated is not None:
        assert value == pytest.approx(stated, rel=tolerance)


def workload(rps: float = 1, prompt: Any = 1000, output: Any = 100, **more: Any) -> dict[str, Any]:
    return {"peak_rps": rps, "input_tokens": prompt, "output_tokens": output, **more}


def card(memory_gb: float = 80, **more: Any) -> dict[str, Any]:
    return {"memory_bytes": memory_gb * GB, **more}
