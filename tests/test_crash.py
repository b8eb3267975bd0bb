"""SIGKILL in the middle of many plan creations: what was answered 201 is there, and nothing is half there."""

import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.serving import Server, serving

pytestmark = pytest.mark.slow

NUM_CREATIONS, NUM_WORKERS, KILL_AFTER = 200, 20, 60
REQUEST = {"model": "llama-3.1-70b", "gpu": "h100-sxm-80gb", "deployment": {"tp": 4, "weights": "fp8"}}


@pytest.fixture
def data_dir() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="inferplan-test-") as directory:
        yield Path(directory)


def create_until_killed(server: Server) -> dict[str, str]:
    """Ids of the plans that were answered 201, by idempotency key; the server is killed once KILL_AFTER have been."""
    answered: dict[str, str] = {}
    enough = threading.Event()

    def create(number: int) -> None:
        body = {"kind": "memory", "name": f"plan {number}", "owner": "crash test", "request": REQUEST}
        try:
            answer = server.request("POST", "/plans", body, {"Idempotency-Key": f"key-{number}"})
        except OSError:
            return  # no answer: the plan may or may not exist
        except Exception as error:
            if type(error).__module__ != "http.client":
                raise
            return
        if answer.status == 201:
            answered[f"key-{number}"] = answer.json["id"]
            if len(answered) >= KILL_AFTER:
                enough.set()

    with ThreadPoolExecutor(NUM_WORKERS) as workers:
        sent = [workers.submit(create, number) for number in range(NUM_CREATIONS)]
        assert enough.wait(120), "too few plans were created"
        server.process.kill()
        for each in sent:
            each.result()
    return answered


def all_plans(server: Server) -> dict[str, dict[str, Any]]:
    """Every stored plan, read whole, by id."""
    found, query = [], "?limit=50"
    while True:
        page = server.request("GET", f"/plans{query}").json
        found += [item["id"] for item in page["items"]]
        if not page.get("next_page_token"):
            break
        query = f"?limit=50&page_token={page['next_page_token']}"
    plans = {}
    for plan_id in found:
        answer = server.request("GET", f"/plans/{plan_id}")
        assert answer.status == 200, answer.text
        plans[plan_id] = answer.json
    return plans


def test_a_kill_loses_no_answered_plan_and_keeps_none_half_written(data_dir: Path) -> None:
    with serving(data_dir) as server:
        answered = create_until_killed(server)
    assert KILL_AFTER <= len(answered) < NUM_CREATIONS, "the kill came too late to mean anything"
    with serving(data_dir) as server:
        began = time.monotonic()
        stored = all_plans(server)
        assert set(answered.values()) <= set(stored)
        assert all(
            plan["revision"] == 1 and plan["answer"]["verdict"] == "serves" and plan["answer"]["working"] for plan in stored.values()
        )
        names = [plan["name"] for plan in stored.values()]
        assert len(names) == len(set(names))
        for number in range(NUM_CREATIONS):  # sent again with their keys, all exist exactly once
            body = {"kind": "memory", "name": f"plan {number}", "owner": "crash test", "request": REQUEST}
            answer = server.request("POST", "/plans", body, {"Idempotency-Key": f"key-{number}"})
            assert answer.status == 201, answer.text
            assert answered.get(f"key-{number}", answer.json["id"]) == answer.json["id"]
        assert len(all_plans(server)) == NUM_CREATIONS
        assert time.monotonic() - began < 300
