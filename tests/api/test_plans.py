"""Saved plans over HTTP."""

import csv
import io
from collections.abc import Callable
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

MEMORY = {"model": "llama-3.1-70b", "gpu": "h100-sxm-80gb", "deployment": {"tp": 4, "weights": "fp8"}}
Json = dict[str, Any]
Save = Callable[..., Response]


def body(**changes: Any) -> Json:
    return {"kind": "memory", "name": "70B on H100", "owner": "platform", "request": MEMORY, **changes}


@pytest.fixture
def save(client: TestClient) -> Save:
    """Save a plan, changed where the test says."""

    def save(headers: dict[str, str] | None = None, **changes: Any) -> Response:
        answer = client.post("/plans", json=body(**changes), headers=headers)
        assert answer.status_code == 201, answer.text
        return answer

    return save


def problem(answer: Response, status: int, code: str) -> Json:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    found: Json = answer.json()
    assert found["code"] == code
    return found


def ids(answer: Response) -> list[str]:
    assert answer.status_code == 200, answer.text
    return [plan["id"] for plan in answer.json()["items"]]


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
    ({"kind": "cost"}, "/request/model"),
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


def test_a_change_is_a_new_revision_and_needs_the_one_it_is_based_on(client: TestClient, save: Save) -> None:
    first = save()
    path = first.headers["location"]
    new = body(name="70B on 8 H100", request={**MEMORY, "deployment": {"tp": 8, "weights": "fp8"}})
    problem(client.put(path, json=new), 428, "precondition_required")
    problem(client.put(path, json=new, headers={"If-Match": '"2"'}), 412, "stale_version")
    problem(client.put(path, json=new, headers={"If-Match": 'W/"1"'}), 412, "stale_version")
    changed = client.put(path, json=new, headers={"If-Match": first.headers["etag"]})
    assert (changed.status_code, changed.headers["etag"]) == (200, '"2"')
    assert changed.json()["answer"] == client.post("/memory", json=new["request"]).json()
    assert client.get(path).json() == changed.json()
    assert client.get(path, params={"revision": 1}).json() == first.json()
    problem(client.put(path, json=new, headers={"If-Match": '"1"'}), 412, "stale_version")
    assert client.put(path, json=new, headers={"If-Match": '"2.md"'}).headers["etag"] == '"3"'
    assert client.put(path, json=new, headers={"If-Match": "*"}).headers["etag"] == '"4"'
    problem(client.get(path, params={"revision": 5}), 404, "not_found")
    problem(client.get(path, params={"revision": 0}), 422, "invalid_request")


def test_a_refused_change_leaves_the_plan_as_it_was(client: TestClient, save: Save) -> None:
    first = save()
    path = first.headers["location"]
    refused = client.put(path, json=body(request={**MEMORY, "gpu": "h1000"}), headers={"If-Match": '"1"'})
    assert problem(refused, 422, "unknown_name")["errors"][0]["pointer"] == "/request/gpu"
    other = client.put(path, json=body(kind="kv", request={"model": "llama-3.1-70b"}), headers={"If-Match": '"1"'})
    assert problem(other, 422, "invalid_input")["errors"][0]["pointer"] == "/kind"
    assert client.get(path).json() == first.json()


def test_revisions_are_listed_newest_first(client: TestClient, save: Save) -> None:
    path = save(name="1").headers["location"]
    for number in (2, 3):
        client.put(path, json=body(name=str(number)), headers={"If-Match": "*"})
    first = client.get(f"{path}/revisions", params={"limit": 2}).json()
    rest = client.get(f"{path}/revisions", params={"limit": 2, "page_token": first["next_page_token"]}).json()
    assert [(each["revision"], each["name"]) for each in first["items"] + rest["items"]] == [(3, "3"), (2, "2"), (1, "1")]
    assert rest["next_page_token"] is None
    problem(client.get(f"/plans/{uuid4()}/revisions"), 404, "not_found")


def test_a_deleted_plan_is_gone(client: TestClient, save: Save) -> None:
    plan = save()
    path = plan.headers["location"]
    problem(client.delete(path), 428, "precondition_required")
    problem(client.delete(path, headers={"If-Match": '"9"'}), 412, "stale_version")
    assert client.delete(path, headers={"If-Match": '"1"'}).status_code == 204
    problem(client.get(path), 404, "not_found")
    problem(client.get(f"{path}/revisions"), 404, "not_found")
    problem(client.post(f"{path}/recompute"), 404, "not_found")
    problem(client.put(path, json=body(), headers={"If-Match": "*"}), 404, "not_found")
    problem(client.delete(path, headers={"If-Match": "*"}), 404, "not_found")
    assert plan.json()["id"] not in ids(client.get("/plans"))


def test_recomputing_heeds_if_match_and_saves_only_what_changed(client: TestClient, save: Save) -> None:
    path = save().headers["location"]
    problem(client.post(f"{path}/recompute", headers={"If-Match": '"2"'}), 412, "stale_version")
    found = client.post(f"{path}/recompute", params={"save": True}, headers={"If-Match": '"1"'})
    assert (found.status_code, found.headers["etag"]) == (200, '"1"')
    assert found.json()["saved_revision"] is None
    # A change of the catalog is a new version of the answer, though not of its figures.
    created = client.post("/gpus", json={"slug": "own-gpu", "name": "Own", "memory_bytes": 10**11})
    assert created.status_code == 201
    saved = client.post(f"{path}/recompute", params={"save": True})
    assert (saved.headers["etag"], saved.json()["saved_revision"], saved.json()["differences"]) == ('"2"', 2, [])
    assert saved.json()["versions_before"]["catalog"] != saved.json()["versions_after"]["catalog"]
    assert client.get(path).json()["versions"] == saved.json()["versions_after"]


def test_recomputing_shows_what_a_changed_catalog_entry_means(client: TestClient, save: Save) -> None:
    own = {"slug": "own-gpu", "name": "Own", "memory_bytes": 80_000_000_000}
    created = client.post("/gpus", json=own)
    path = save(request={**MEMORY, "gpu": "own-gpu"}).headers["location"]
    assert client.put(
        "/gpus/own-gpu", json={**own, "memory_bytes": 160_000_000_000}, headers={"If-Match": created.headers["etag"]}
    ).is_success
    found = client.post(f"{path}/recompute").json()
    changed = {each["pointer"]: each for each in found["differences"]}
    assert changed["/per_gpu/memory_bytes"] == {
        "pointer": "/per_gpu/memory_bytes",
        "before": 80_000_000_000,
        "after": 160_000_000_000,
        "change": 80_000_000_000,
        "change_ratio": 1.0,
    }
    assert found["saved_revision"] is None
    etag = client.get("/gpus/own-gpu").headers["etag"]
    assert client.delete("/gpus/own-gpu", headers={"If-Match": etag}).status_code == 204
    assert problem(client.post(f"{path}/recompute"), 422, "unknown_name")["errors"][0]["pointer"] == "/request/gpu"
    assert client.get(path).status_code == 200
    assert len(ids(client.get("/plans", params={"gpu": "Own-GPU"}))) == 1


def test_two_plans_are_compared(client: TestClient, save: Save) -> None:
    one = save(name="four").json()
    other = save(name="eight", request={**MEMORY, "deployment": {"tp": 8, "weights": "fp8"}}).json()
    found = client.get(f"/plans/{one['id']}/compare/{other['id']}").json()
    assert found["inputs"] == [{"pointer": "/deployment/tp", "before": 4, "after": 8, "change": 4, "change_ratio": 1.0}]
    answers = {each["pointer"]: each for each in found["answers"]}
    assert answers["/num_gpus"]["after"] == 8
    assert answers["/per_gpu/weights_bytes"]["change_ratio"] == pytest.approx(-0.5)
    assert (found["before"]["name"], found["after"]["name"], found["not_compared"]) == ("four", "eight", [])
    back = client.get(f"/plans/{other['id']}/compare/{one['id']}").json()
    assert back["inputs"][0]["change"] == -4
    problem(client.get(f"/plans/{one['id']}/compare/{uuid4()}"), 404, "not_found")


def test_two_revisions_of_a_plan_are_compared(client: TestClient, save: Save) -> None:
    path = save().headers["location"]
    client.put(path, json=body(request={**MEMORY, "deployment": {"tp": 8, "weights": "fp8"}}), headers={"If-Match": '"1"'})
    same = path.removeprefix("/plans/")
    found = client.get(f"{path}/compare/{same}", params={"revision": 1, "other_revision": 2}).json()
    assert [each["pointer"] for each in found["inputs"]] == ["/deployment/tp"]
    assert client.get(f"{path}/compare/{same}", params={"revision": 1, "other_revision": 1}).json()["answers"] == []
    problem(client.get(f"{path}/compare/{same}", params={"other_revision": 3}), 404, "not_found")


def test_plans_of_different_kinds_are_compared_on_what_both_have(client: TestClient, save: Save) -> None:
    memory = save().json()
    kv = save(kind="kv", request={"model": "llama-3.3-70b", "tp": 4}).json()
    found = client.get(f"/plans/{memory['id']}/compare/{kv['id']}").json()
    assert [each["pointer"] for each in found["inputs"]] == ["/model"]
    assert {"/inputs/gpu", "/inputs/deployment", "/inputs/tp", "/answer/verdict", "/answer/by_context"} <= set(found["not_compared"])


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
