"""Saved plans over HTTP."""

import csv
import io
from typing import Any
from uuid import uuid4

import pytest
from fastapi.testclient import TestClient
from httpx2 import Response
from sqlalchemy.orm import Session, sessionmaker

from app.api.examples import HF_CONFIG, INLINE_MODEL, OWN_MODEL, PLANS
from app.main import create_app
from app.services import api_keys
from app.settings import Settings
from tests.api.plan_bodies import MEMORY, Json, Save, body, ids
from tests.api.problems import problem


@pytest.mark.parametrize("kind", list(PLANS))
def test_a_plan_of_each_kind_holds_what_its_calculation_answers(client: TestClient, kind: str) -> None:
    sent = PLANS[kind][1]
    created = client.post("/plans", json=sent)
    assert created.status_code == 201, created.text
    plan = created.json()
    assert created.headers["location"] == f"/plans/{plan['id']}"
    assert created.headers["etag"] == '"1"'
    assert plan["answer"] == client.post(f"/{kind}", json=sent["request"]).json()
    assert next(iter(plan["answer"])) == "summary"
    assert plan["versions"] == plan["answer"]["versions"]
    assert client.get(created.headers["location"]).json() == plan
    again = client.post(f"/plans/{plan['id']}/recompute").json()
    assert (again["differences"], again["answer"]) == ([], plan["answer"])
    for accept in ("text/markdown", "text/csv"):
        assert client.get(f"/plans/{plan['id']}", headers={"Accept": accept}).status_code == 200


def test_the_request_comes_back_as_it_was_given_and_can_be_sent_again(client: TestClient, save: Save) -> None:
    plan = save(labels=["prod", "eu", "prod"], notes="a\nb").json()
    assert (plan["kind"], plan["labels"], plan["notes"], plan["request"]) == ("memory", ["prod", "eu"], "a\nb", MEMORY)
    assert plan["inputs"]["deployment"]["pp"] == 1
    assert plan["answer"] == client.post("/memory", json=plan["request"]).json()


def test_what_a_request_describes_inline_is_computed_again_from_what_is_stored(client: TestClient, subtests: pytest.Subtests) -> None:
    gpu = {"memory_bytes": 80e9, "memory_bandwidth_bytes_per_s": 3.35e12, "peak_flops_per_s": 989e12}
    mix = [
        {"share_ratio": 0.25, "input_tokens": 8000, "output_tokens": 100},
        {"share_ratio": 0.75, "input_tokens": 500, "output_tokens": 900},
    ]
    layers = {key: OWN_MODEL[key] for key in ("layer_groups", "hidden_size", "vocab_size")}
    workloads: list[Json] = [
        {"peak_rps": 3, "classes": mix},
        {"peak_rps": 3, "input_tokens": {"mean": 900, "p95": 2000}, "output_tokens": 100},
    ]
    for model in ({"params": 7e9}, INLINE_MODEL, layers, {"hf_config": HF_CONFIG | {"rope_scaling": None}}):
        for workload in workloads:
            with subtests.test(model=str(model)[:20], workload=str(workload)[:30]):
                request = {"model": model, "gpu": gpu, "workload": workload, "measured": {"output_tokens_per_s": 900, "concurrency": 30}}
                created = client.post("/plans", json=body(kind="capacity", request=request))
                assert created.status_code == 201, created.text
                plan = created.json()
                assert plan["answer"] == client.post("/capacity", json=request).json()
                assert plan["answer"] == client.post("/capacity", json=plan["request"]).json()
                assert client.post(f"/plans/{plan['id']}/recompute").json()["differences"] == []


REFUSED: list[tuple[Json, str]] = [
    ({"request": {**MEMORY, "gpu": "h1000"}}, "/request/gpu"),
    ({"request": {**MEMORY, "deployment": {"tp": 3}}}, "/request/deployment/tp"),
    ({"request": {**MEMORY, "deployment": {"tp": "four"}}}, "/request/deployment/tp"),
    ({"request": {"model": "llama-3.1-70b"}}, "/request/gpu"),
    ({"request": {**MEMORY, "gpus": 4}}, "/request/gpus"),
    ({"kind": "weather"}, "/kind"),
    ({"kind": "cost", "request": {"replica_usd_per_hour": 20, "concurrency": 4}}, "/request/concurrency"),
    ({"name": ""}, "/name"),
    ({"name": "   "}, "/name"),
    ({"name": "two\nlines"}, "/name"),
    ({"name": "x" * 201}, "/name"),
    ({"owner": "x" * 101}, "/owner"),
    ({"labels": ["x"] * 21}, "/labels"),
    ({"labels": ["x" * 64]}, "/labels/0"),
    ({"labels": [""]}, "/labels/0"),
    ({"notes": "x" * 10_001}, "/notes"),
    ({"answer": {}}, "/answer"),
]


def test_a_refused_plan_is_not_stored_and_the_field_is_named(client: TestClient, subtests: pytest.Subtests) -> None:
    before = ids(client.get("/plans"))
    for changes, pointer in REFUSED:
        with subtests.test(changes=str(changes)[:50], pointer=pointer):
            answer = client.post("/plans", json=body(**changes))
            assert answer.status_code == 422
            assert pointer in {error["pointer"] for error in answer.json()["errors"]}
    assert ids(client.get("/plans")) == before


def test_what_is_at_the_limit_is_stored(save: Save) -> None:
    longest = {"name": "é" * 200, "owner": "x" * 100, "labels": [f"{number:063}" for number in range(20)], "notes": "\U0001f600" * 10_000}
    plan = save(**longest).json()
    assert {name: plan[name] for name in longest} == longest


def test_a_list_is_filtered_by_all_that_is_given(client: TestClient, save: Save) -> None:
    owner = f"team-{uuid4()}"
    hub = save(owner=owner, labels=["a", "b"], request={**MEMORY, "model": "meta-llama/Llama-3.1-70B"}).json()["id"]
    kv = save(owner=owner, labels=["a"], kind="kv", request={"model": "llama-3.1-70b"}).json()["id"]
    inline = save(owner=owner, request={**MEMORY, "model": {"params": 70_000_000_000}, "gpu": {"memory_bytes": 80_000_000_000}}).json()[
        "id"
    ]

    def listed(**query: Any) -> set[str]:
        return set(ids(client.get("/plans", params={"owner": owner, **query})))

    assert listed() == {hub, kv, inline}
    assert listed(label="a") == {hub, kv}
    assert listed(label=["a", "b"]) == {hub}
    assert listed(model="llama-3.1-70b") == listed(model="META-LLAMA/llama-3.1-70b") == {hub, kv}
    assert listed(gpu="H100-sxm-80gb") == {hub}
    assert listed(model="llama-3.1-70b", kind="kv") == {kv}
    assert listed(model="llama-9") == set()
    assert listed(owner="somebody else") == set()


def test_the_price_of_a_fleet_is_found_by_its_model(client: TestClient, save: Save) -> None:
    fleet = MEMORY | {"workload": {"peak_rps": 1, "input_tokens": 100, "output_tokens": 10}}
    saved = save(kind="cost", request={"plan": fleet}).json()
    assert (saved["model"], saved["gpu"]) == ("llama-3.1-70b", "h100-sxm-80gb")
    assert ids(client.get("/plans", params={"model": "llama-3.1-70b", "kind": "cost"})) == [saved["id"]]


def test_pages_go_from_the_newest_to_the_oldest_plan(client: TestClient, save: Save) -> None:
    owner = f"team-{uuid4()}"
    saved = {save(owner=owner).json()["id"] for _ in range(5)}
    seen: list[str] = []
    query: Json = {"owner": owner, "limit": 2}
    for expected in (2, 2, 1):
        answer = client.get("/plans", params=query)
        assert len(ids(answer)) == expected
        seen += ids(answer)
        query["page_token"] = answer.json()["next_page_token"]
    assert query["page_token"] is None
    assert len(seen) == 5
    assert set(seen) == saved


def test_a_page_token_belongs_to_its_list(client: TestClient, save: Save) -> None:
    plan = [save().json(), save().json()][0]
    token = client.get("/plans", params={"limit": 1}).json()["next_page_token"]
    problem(client.get("/plans", params={"limit": 1, "owner": "x", "page_token": token}), 422, "invalid_page_token")
    problem(client.get(f"/plans/{plan['id']}/revisions", params={"page_token": token}), 422, "invalid_page_token")
    problem(client.get("/plans", params={"page_token": "x"}), 422, "invalid_page_token")


def test_a_query_that_means_nothing_is_refused(client: TestClient, subtests: pytest.Subtests) -> None:
    for query in ("label=", f"label={'x' * 64}", "limit=0", "kind=weather", "lable=a", "model="):
        with subtests.test(query=query):
            problem(client.get(f"/plans?{query}"), 422, "invalid_request")


def test_a_plan_is_json_markdown_or_csv(client: TestClient, save: Save) -> None:
    path = save(name="A | B").headers["location"]
    assert client.get(path).headers["content-type"] == "application/json"
    document = client.get(path, headers={"Accept": "text/markdown"})
    assert document.headers["content-type"] == "text/markdown; charset=utf-8; variant=GFM"
    assert document.text.startswith("# A \\| B\n")
    assert "| `deployment.tp` | 4 |  |  | given |" in document.text
    assert "| `deployment.pp` | 1 |  |  | default |" in document.text
    sheet = client.get(path, headers={"Accept": "text/csv, */*;q=0.1"})
    assert sheet.headers["content-type"] == "text/csv; charset=utf-8; header=present"
    rows = {row[0]: row[1:] for row in csv.reader(io.StringIO(sheet.text, newline=""))}
    assert rows["name"] == ["A | B", ""]
    assert rows["answer.per_gpu.weights_bytes"][1] == "bytes"
    forms = [client.get(path, headers={"Accept": accept}) for accept in ("*/*", "text/markdown", "text/csv")]
    assert [form.headers["vary"] for form in forms] == ["Accept"] * 3
    assert [form.headers["etag"] for form in forms] == ['"1"', '"1.md"', '"1.csv"']
    refused = client.get(path, headers={"Accept": "text/html"})
    problem(refused, 406, "not_acceptable")
    assert refused.headers["vary"] == "Accept"


def test_who_has_the_revision_gets_it_not_again(client: TestClient, save: Save) -> None:
    path = save().headers["location"]
    for accept, tag in (("application/json", '"1"'), ("text/markdown", '"1.md"')):
        same = client.get(path, headers={"Accept": accept, "If-None-Match": f'"7", W/{tag}'})
        assert (same.status_code, same.content, same.headers["etag"], same.headers["vary"]) == (304, b"", tag, "Accept")
    assert client.get(path, headers={"If-None-Match": '"1.md"'}).status_code == 200
    change = client.put(path, json=body(name="New"), headers={"If-Match": '"1"'})
    assert change.status_code == 200
    assert client.get(path, headers={"If-None-Match": '"1"'}).status_code == 200


def test_a_creation_with_a_key_happens_once(client: TestClient, save: Save) -> None:
    owner = f"team-{uuid4()}"
    key = {"Idempotency-Key": "3f1c"}
    first = save(key, owner=owner)
    again = save(key, owner=owner)
    assert "idempotency-replayed" not in first.headers
    assert again.headers["idempotency-replayed"] == "true"
    assert again.content == first.content
    assert (again.headers["location"], again.headers["etag"]) == (first.headers["location"], first.headers["etag"])
    assert len(ids(client.get("/plans", params={"owner": owner}))) == 1
    conflict = client.post("/plans", json=body(owner=owner, name="Another"), headers=key)
    problem(conflict, 422, "idempotency_conflict")
    save({"Idempotency-Key": "another"}, owner=owner)
    assert len(ids(client.get("/plans", params={"owner": owner}))) == 2


def test_a_refused_creation_does_not_use_its_key_up(client: TestClient, save: Save) -> None:
    key = {"Idempotency-Key": "once more"}
    problem(client.post("/plans", json=body(request={**MEMORY, "gpu": "h1000"}), headers=key), 422, "unknown_name")
    assert "idempotency-replayed" not in save(key).headers


def test_a_key_that_is_none_is_refused(client: TestClient, subtests: pytest.Subtests) -> None:
    for key in ("", "x" * 256, "tab\tinside"):
        with subtests.test(key=key[:10]):
            problem(client.post("/plans", json=body(), headers={"Idempotency-Key": key}), 422, "invalid_request")


def test_keys_and_scopes(settings: Settings, session_factory: sessionmaker[Session]) -> None:
    with session_factory.begin() as session:
        secrets = {name: api_keys.create(session, name=name, scopes=[name])[1] for name in ("read", "write")}
        both = [api_keys.create(session, name=name, scopes=["read", "write"])[1] for name in ("one", "two")]
    app = create_app(settings.model_copy(update={"require_api_key": True}), session_factory=session_factory)
    with TestClient(app) as client:

        def call(secret: str, method: str, path: str, **more: Any) -> Response:
            return client.request(method, path, headers={"X-API-Key": secret, **more.pop("headers", {})}, **more)

        problem(client.get("/plans"), 401, "api_key_missing")
        problem(call(secrets["read"], "POST", "/plans", json=body()), 403, "scope_missing")
        problem(call(secrets["write"], "GET", "/plans"), 403, "scope_missing")
        path = call(secrets["write"], "POST", "/plans", json=body()).headers["location"]
        assert call(secrets["read"], "GET", path).status_code == 200
        assert call(secrets["read"], "POST", f"{path}/recompute").status_code == 200
        problem(call(secrets["read"], "POST", f"{path}/recompute?save=true"), 403, "scope_missing")
        assert call(both[0], "POST", f"{path}/recompute?save=true").status_code == 200
        problem(call(secrets["read"], "PUT", path, json=body(), headers={"If-Match": "*"}), 403, "scope_missing")
        problem(call(secrets["read"], "DELETE", path, headers={"If-Match": "*"}), 403, "scope_missing")
        same_key = {"Idempotency-Key": "mine"}
        made = [call(secret, "POST", "/plans", json=body(), headers=same_key).json()["id"] for secret in both]
        assert made[0] != made[1]
        assert call(both[0], "POST", "/plans", json=body(), headers=same_key).json()["id"] == made[0]
