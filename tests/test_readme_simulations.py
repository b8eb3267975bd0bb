"""The table of simulated variants in the README is what the service answers."""

import json
import math
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.domain.units import seconds

pytestmark = pytest.mark.slow

README = (Path(__file__).parent.parent / "README.md").read_text()
CALL = re.search(r"```sh\n(curl -s localhost:8000/simulate [^\n]+)\n```", README)
HEADER = (
    "| 10 requests/s, 70B fp8, tp 4 | TTFT 1,000 | TTFT 8,000 | TTFT 32,000 | TPOT 1,000 | TPOT 8,000 | TPOT 32,000 | ITL P99.9"
    " | objectives |"
)
POOLS = [{"name": "short", "replicas": 1, "classes": ["class-1"]}, {"name": "long", "replicas": 5}]
Body = dict[str, Any]
VARIANTS: dict[str, Body] = {
    "6 replicas, chunked prefill": {"faults": []},
    "6 replicas, whole prompts": {"faults": [], "deployment": {"chunked_prefill": False}},
    "6 replicas, steps of 2,048 tokens": {"faults": [], "deployment": {"max_num_batched_tokens": 2048}},
    "6 replicas, at most 2,048 tokens of a prompt in a step": {"faults": [], "scheduler": {"long_prefill_threshold_tokens": 2048}},
    "1 for short, 5 for long prompts": {"faults": [], "replicas": None, "pools": POOLS},
    "6 replicas, one lost for 5 minutes": {},
    "5 replicas": {"faults": [], "replicas": 5},
    "5 replicas, one lost for 5 minutes": {"replicas": 5},
}


def shown() -> Body:
    assert CALL
    words = shlex.split(CALL[1])
    body: Body = json.loads(words[words.index("-d") + 1])
    return body


def row(client: TestClient, name: str) -> str:
    """A line of the table: P99 by class of request, the longest gaps between tokens, and what becomes of each objective."""
    changes = VARIANTS[name]
    body = shown() | changes | {"deployment": shown()["deployment"] | changes.get("deployment", {})}
    answer = client.post("/simulate", json={field: value for field, value in body.items() if value is not None})
    assert answer.status_code == 200, answer.text
    found = answer.json()
    kinds = [kind["times"] for kind in found["kinds"]]
    objectives = [part["objectives"] for part in found["pools"] or [found]]
    verdicts = [", ".join(f"{each['name'].split('_')[0].upper()} {each['verdict']}" for each in part) for part in objectives]
    cells = [seconds(kind[time]["p99"]["value"]) for time in ("ttft_s", "tpot_s") for kind in kinds]
    cells.append(seconds(found["times"]["itl_s"]["p999"]["value"]))
    return f"| {name} | {' | '.join(cells)} | {'; '.join(verdicts)} |"


@pytest.mark.parametrize("name", VARIANTS)
def test_a_line_of_the_table_is_simulated(client: TestClient, name: str) -> None:
    assert HEADER in README
    assert row(client, name) in README


def test_requests_dealt_in_turn_need_more_replicas_than_the_least_loaded(client: TestClient) -> None:
    body = {name: shown()[name] for name in ("model", "gpu", "deployment", "workload", "slo")}

    def found(balancing: str) -> float:
        constraints = client.post("/capacity", json=body | {"balancing": balancing}).json()["constraints"]
        return max(float(each["replicas_exact"]) for each in constraints if each["replicas_exact"] is not None)

    least, turn = found("least_loaded"), found("round_robin")
    said = f"finds {least:.2f}, hence {math.ceil(least)}, before redundancy, and with requests dealt in turn"
    assert f'{said} (`"balancing": "round_robin"`) {turn:.2f}, hence {math.ceil(turn)}.' in README.replace("\n", " ")
    assert turn > least
