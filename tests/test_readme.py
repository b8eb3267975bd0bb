"""The README's calls work and give the answers that it shows."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from httpx2 import Response

README = (Path(__file__).parent.parent / "README.md").read_text()
SHOWN = re.findall(r"```sh\n(curl [^\n]+)\n```\n\n```json\n(.*?)\n```", README, flags=re.DOTALL)
FLOW = next(block for block in re.findall(r"```sh\n(.*?)\n```", README, flags=re.DOTALL) if "PLAN=" in block).splitlines()


def send(client: TestClient, line: str) -> Response:
    """Send what a curl command line would."""
    words = shlex.split(line)
    assert words[:2] == ["curl", "-s"]
    method, headers, body, address = None, {}, None, ""
    rest = iter(words[2:])
    for word in rest:
        if word == "-X":
            method = next(rest)
        elif word == "-H":
            name, _, value = next(rest).partition(": ")
            headers[name] = value
        elif word == "-d":
            body = next(rest)
        else:
            address = word
    path = address.removeprefix("localhost:8000")
    assert path.startswith("/")
    return client.request(method or ("POST" if body else "GET"), path, headers=headers, content=body)


def contains(whole: Any, part: Any) -> bool:
    """Whether an answer has everything that an excerpt shows: of objects some members, of lists the first entries."""
    if isinstance(part, list):
        return isinstance(whole, list) and len(part) <= len(whole) and all(map(contains, whole, part))
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(key in whole and contains(whole[key], value) for key, value in part.items())
    return bool(whole == part)


@pytest.mark.parametrize(("call", "shown"), SHOWN, ids=[re.search(r"8000/[\w/-]+", call).group() for call, _ in SHOWN])  # type: ignore[union-attr]
def test_answers_are_what_the_readme_shows(client: TestClient, call: str, shown: str) -> None:
    answer = send(client, call)
    assert answer.status_code == 200, answer.text
    assert contains(answer.json(), json.loads(shown)), answer.text


def test_a_calibration_is_made_of_a_results_file(client: TestClient) -> None:
    written = re.search(r"jq -n --rawfile sweep \S+ '(.*?)' \| curl -s localhost:8000(\S+) ", README)
    assert written
    results = (Path(__file__).parent / "importers" / "benchmark" / "vllm-0.33.0" / "sweep.jsonl").read_text(encoding="utf-8")
    answer = client.post(written[2], json=json.loads(written[1].replace("$sweep", json.dumps(results))))
    assert answer.status_code == 201, answer.text
    assert answer.json()["num_rows"] == 3


def test_results_files_of_a_ramp_are_analysed_as_the_readme_says(client: TestClient) -> None:
    written = re.search(r"jq -n --rawfile one .*? '(.*?)' \| curl -s localhost:8000(\S+) ", README)
    assert written
    folder = Path(__file__).parent / "api" / "load_test_results"
    names = {"$one": 1, "$four": 4, "$eight": 8}
    body = written[1]
    for name, level in names.items():
        body = body.replace(name, json.dumps((folder / f"concurrency-{level}.json").read_text(encoding="utf-8")))
    answer = client.post(written[2], json=json.loads(body))
    assert answer.status_code == 200, answer.text
    assert answer.json()["summary"] in README.replace("\n", " ")


SCRAPES = re.findall(r"^\| `((vllm|sglang)_\S+)` \| (\w+) \| (.*) \|$", README, flags=re.MULTILINE)


def test_four_situations_are_diagnosed() -> None:
    assert [stem.split("_", 2)[2] for stem, *_ in SCRAPES] == ["saturated", "prefill_flooded", "cuda_graph_gap", "healthy"]


@pytest.mark.parametrize(("stem", "engine_name", "state", "summary"), SCRAPES, ids=[stem for stem, *_ in SCRAPES])
def test_scrapes_are_diagnosed_as_the_readme_shows(client: TestClient, stem: str, engine_name: str, state: str, summary: str) -> None:
    written = re.search(r"jq -n --rawfile before \S+ --rawfile after \S+ '(.*?)' \| curl -s localhost:8000(\S+) ", README)
    assert written
    body = written[1].replace('"engine": "vllm"', f'"engine": "{engine_name}"')
    for name in ("before", "after"):
        text = (Path(__file__).parent / "importers" / "scrapes" / f"{stem}_{name}.txt").read_text(encoding="utf-8")
        body = body.replace(f"${name}", json.dumps(text))
    answer = client.post(written[2], json=json.loads(body)).json()
    assert (answer["state"], answer["summary"]) == (state, summary)


@pytest.mark.parametrize("whole", [{}, {"a": [1]}, {"a": [2, 1]}, {"a": 1}], ids=["no-member", "shorter", "other-order", "no-list"])
def test_an_excerpt_that_is_not_in_the_answer_is_found(whole: Any) -> None:
    assert contains({"a": [1, 2, 3], "b": 1}, {"a": [1, 2]})
    assert not contains(whole, {"a": [1, 2]})


def test_every_calculation_is_shown() -> None:
    assert [re.search(r"8000/([\w/-]+)", call).group(1) for call, _ in SHOWN] == [  # type: ignore[union-attr]
        "memory", "memory/reconcile", "kv", "concurrency", "performance", "capacity", "simulate", "recommend", "cost", "load-tests",
        "monitoring", "diagnose",
    ]  # fmt: skip


def test_a_plan_is_kept_changed_compared_and_exported(client: TestClient) -> None:
    create, assign, *later = FLOW
    created = send(client, create)
    assert created.status_code == 201
    looked_up = re.fullmatch(r"PLAN=\$\((curl .*?) \| grep -o '(.*)' \| cut -d'\"' -f4\) .*", assign)
    assert looked_up
    plan = created.json()["id"]
    assert re.findall(looked_up[2], send(client, looked_up[1]).text) == [f'"id":"{plan}"']
    answers = [send(client, line.replace("$PLAN", plan)) for line in later]
    assert [answer.status_code for answer in answers] == [200] * len(later), [answer.text for answer in answers]
    changed, compared, markdown, csv, recomputed = answers
    assert changed.json()["revision"] == 2
    assert [item["pointer"] for item in compared.json()["inputs"]] == ["/deployment/kv_cache"]
    assert markdown.text.startswith("# Knowledge base, launch")
    assert csv.text.startswith("field,value,unit")
    assert recomputed.json()["summary"]
