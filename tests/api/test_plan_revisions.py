"""Saved plans over HTTP: changes, revisions, computing again, comparing."""

from uuid import uuid4

import pytest
from fastapi.testclient import TestClient

from tests.api.plan_bodies import MEMORY, Save, body, ids
from tests.api.problems import problem


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
