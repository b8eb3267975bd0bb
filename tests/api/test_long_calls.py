"""Calls that compute for seconds end when their caller hangs up."""

import asyncio
import json
from typing import Any

import pytest
from fastapi.testclient import TestClient
from starlette.types import Message

WORKLOAD = {"peak_rps": 10, "input_tokens": 1000, "output_tokens": 200}
SIMULATION: dict[str, Any] = {"model": "llama-3.1-8b", "gpu": "h100-sxm-80gb", "workload": WORKLOAD, "duration_s": 2500}
SEARCH: dict[str, Any] = {"model": "llama-3.1-405b", "workload": WORKLOAD, "slo": {"ttft_p95_s": 5}, "engines": ["vllm", "sglang"]}


async def hang_up(app: Any, path: str, body: dict[str, Any], after_s: float) -> tuple[int, bytes]:
    """Status and body of what is sent to a caller that is gone."""
    sent: list[Message] = []
    waiting = [{"type": "http.request", "body": json.dumps(body).encode()}]

    async def receive() -> Message:
        if waiting:
            return waiting.pop()
        await asyncio.sleep(after_s)
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)

    headers = [(b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "query_string": b"", "headers": headers}
    await app(
        {**scope, "http_version": "1.1", "scheme": "http", "server": ("test", 80), "client": ("test", 1), "root_path": ""}, receive, send
    )
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent)


@pytest.mark.parametrize("after_s", [0.0, 0.3], ids=["at-once", "in-mid-run"])
def test_a_simulation_ends_with_its_caller(client: TestClient, after_s: float) -> None:
    assert asyncio.run(hang_up(client.app, "/simulate", SIMULATION, after_s)) == (499, b"")


def test_a_search_ends_with_its_caller(client: TestClient) -> None:
    status, body = asyncio.run(hang_up(client.app, "/recommend", SEARCH, 0.1))
    assert status == 200
    assert not json.loads(body)["search"]["complete"]
