"""`/diagnosis-profiles` over HTTP, and diagnoses that follow a profile."""

from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy.orm import Session, sessionmaker

from app.main import create_app
from app.services import api_keys
from app.services.catalog import CatalogHolder
from app.settings import Settings
from tests.api.problems import problem

PATH = "/diagnosis-profiles"
PROFILE: dict[str, Any] = {
    "name": "chat",
    "owner": "platform",
    "notes": "First line.\nSecond line.",
    "thresholds": {"kv_near_full.kv_full": 0.98, "objective.tpot_s": 0.05},
    "slo": {"ttft_p95_s": 1},
}
FULL: dict[str, Any] = {"kv_cache_usage_ratio": 0.95, "num_waiting_requests": 12, "num_running_requests": 60}
"""Above the rule's own threshold of the KV cache, below that of the profile."""


@pytest.fixture
def own(client: TestClient) -> str:
    """ETag of the stored profile."""
    answer = client.post(PATH, json=PROFILE)
    assert answer.status_code == 201, answer.text
    return str(answer.headers["ETag"])


def ask(client: TestClient, **body: Any) -> dict[str, Any]:
    answer = client.post("/diagnose", json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def lines(answer: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """Every evidence line of that threshold."""
    rules = [*answer["findings"], *answer["silent"]]
    return [line for rule in rules for line in rule["evidence"] if line["name"] == name]


def note(notes: list[dict[str, str]], code: str) -> str:
    (found,) = [each["message"] for each in notes if each["code"] == code]
    return found


def test_a_profile_is_kept_as_it_was_given(client: TestClient) -> None:
    answer = client.post(PATH, json=PROFILE)
    assert answer.status_code == 201
    body = answer.json()
    assert answer.headers["Location"] == f"{PATH}/chat"
    assert answer.headers["ETag"] == f'"{body["version"]}"'
    kept = {name: body[name] for name in PROFILE}
    assert kept | {"slo": {"ttft_p95_s": body["slo"]["ttft_p95_s"]}} == PROFILE
    read = client.get(f"{PATH}/Chat")
    assert (read.json(), read.headers["ETag"]) == (body, answer.headers["ETag"])
    bare = client.post(PATH, json={"name": "bare", "owner": "x"}).json()
    assert (bare["thresholds"], bare["slo"], bare["notes"]) == ({}, None, "")


def test_a_close_miss_names_the_nearest(client: TestClient, own: str) -> None:
    found = problem(client.get(f"{PATH}/chatt"), 404, "not_found")
    assert found["errors"][0]["expected"] == "chat"
    assert found["errors"][0]["pointer"] == "/name"


@pytest.mark.parametrize(
    ("changed", "pointer", "code", "expected"),
    [
        ({"name": "Our chat"}, "/name", "string_pattern_mismatch", None),
        ({"owner": ""}, "/owner", "string_too_short", None),
        ({"thresholds": {"kv_near_full.kv_ful": 1}}, "/thresholds/kv_near_full.kv_ful", "unknown_name", "kv_near_full.kv_full"),
        ({"thresholds": {"objective.ttft": 1}}, "/thresholds/objective.ttft", "unknown_name", "objective.ttft_s"),
        ({"thresholds": {"kv_near_full.kv_full": -1}}, "/thresholds/kv_near_full.kv_full", "greater_than_equal", None),
        ({"thresholds": {"kv_near_full.kv_full": "0.9"}}, "/thresholds/kv_near_full.kv_full", "float_type", None),
        ({"slo": {"ttft_p95_s": 0}}, "/slo/ttft_p95_s", "greater_than_equal", None),
        ({"treshold": 1}, "/treshold", "extra_forbidden", None),
    ],
    ids=["name", "owner", "rule", "objective", "negative", "text", "slo", "unknown field"],
)
@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_an_invalid_profile_is_refused_with_its_field(
    client: TestClient, own: str, method: str, changed: dict[str, Any], pointer: str, code: str, expected: str | None
) -> None:
    path, headers = (f"{PATH}/chat", {"If-Match": own}) if method == "PUT" else (PATH, {})
    answer = client.request(method, path, json={**PROFILE, "name": "chat" if method == "PUT" else "other", **changed}, headers=headers)
    assert answer.status_code == 422, answer.text
    error = answer.json()["errors"][0]
    assert (error["pointer"], error["code"]) == (pointer, code)
    assert expected is None or expected in error["expected"]
    assert client.get(f"{PATH}/chat").headers["ETag"] == own


def test_a_name_is_taken_once(client: TestClient, own: str) -> None:
    found = problem(client.post(PATH, json=PROFILE), 409, "already_exists")
    assert found["errors"][0]["pointer"] == "/name"


def test_a_creation_that_is_sent_again_is_answered_again(client: TestClient) -> None:
    key = {"Idempotency-Key": "once"}
    first, again = client.post(PATH, json=PROFILE, headers=key), client.post(PATH, json=PROFILE, headers=key)
    assert (first.status_code, again.status_code) == (201, 201), again.text
    assert (again.json(), again.headers["etag"]) == (first.json(), first.headers["etag"])
    assert [answer.headers.get("idempotency-replayed") for answer in (first, again)] == [None, "true"]
    problem(client.post(PATH, json=PROFILE | {"owner": "else"}, headers=key), 422, "idempotency_conflict")
    assert [item["owner"] for item in client.get(PATH).json()["items"]] == ["platform"]


def test_profiles_are_listed_by_name_in_pages(client: TestClient) -> None:
    for name in ("c", "a-1", "b", "a.1"):
        assert client.post(PATH, json={"name": name, "owner": "even" if name == "b" else "odd"}).status_code == 201
    seen: list[str] = []
    token = None
    while token is not None or not seen:
        answer = client.get(PATH, params={"limit": 2, "owner": "odd", **({"page_token": token} if token else {})}).json()
        seen += [item["name"] for item in answer["items"]]
        token = answer["next_page_token"]
    assert seen == ["a-1", "a.1", "c"]
    first = client.get(PATH, params={"limit": 1, "owner": "odd"}).json()["next_page_token"]
    problem(client.get(PATH, params={"limit": 1, "owner": "even", "page_token": first}), 422, "invalid_page_token")


def test_a_profile_is_replaced_as_a_whole(client: TestClient, own: str) -> None:
    answer = client.put(f"{PATH}/chat", json={"name": "chat", "owner": "search"}, headers={"If-Match": own})
    assert answer.status_code == 200
    assert answer.headers["ETag"] != own
    assert (answer.json()["thresholds"], answer.json()["slo"], answer.json()["owner"]) == ({}, None, "search")
    assert client.get(f"{PATH}/chat").json() == answer.json()
    assert ask(client, metrics=FULL, profile="chat")["assumptions"]
    problem(client.put(f"{PATH}/chat", json={"name": "other", "owner": "x"}, headers={"If-Match": "*"}), 422, "invalid_input")


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
def test_a_change_needs_the_version_that_was_read(client: TestClient, own: str, method: str) -> None:
    def change(name: str, headers: dict[str, str]) -> Any:
        return client.request(method, f"{PATH}/{name}", json=PROFILE if method == "PUT" else None, headers=headers)

    problem(change("chat", {}), 428, "precondition_required")
    for stale in ('"0"', "W/" + own, "garbage"):
        problem(change("chat", {"If-Match": stale}), 412, "stale_version")
    problem(change("nowhere", {"If-Match": "*"}), 404, "not_found")
    assert client.get(f"{PATH}/chat").headers["ETag"] == own
    assert change("chat", {"If-Match": own}).status_code in (200, 204)
    if method == "DELETE":
        problem(client.get(f"{PATH}/chat"), 404, "not_found")
        problem(client.post("/diagnose", json={"metrics": FULL, "profile": "chat"}), 422, "unknown_name")
        assert client.post(PATH, json=PROFILE).headers["ETag"] != own


def test_of_two_writers_the_second_is_told(client: TestClient, own: str) -> None:
    for owner, status in (("first", 200), ("second", 412)):
        assert client.put(f"{PATH}/chat", json=PROFILE | {"owner": owner}, headers={"If-Match": own}).status_code == status
    assert client.get(f"{PATH}/chat").json()["owner"] == "first"


def test_a_reader_cannot_change_profiles(settings: Settings, session_factory: sessionmaker[Session]) -> None:
    with session_factory.begin() as session:
        _, secret = api_keys.create(session, name="reader", scopes=["read"])
    app = create_app(settings.model_copy(update={"require_api_key": True}), session_factory=session_factory)
    with TestClient(app, headers={"Authorization": f"Bearer {secret}"}) as client:
        assert client.get(PATH).json() == {"items": [], "next_page_token": None}
        for answer in (
            client.post(PATH, json=PROFILE),
            client.put(f"{PATH}/chat", json=PROFILE, headers={"If-Match": "*"}),
            client.delete(f"{PATH}/chat", headers={"If-Match": "*"}),
        ):
            problem(answer, 403, "scope_missing")


def test_a_diagnosis_follows_the_profile_and_says_so(client: TestClient, own: str) -> None:
    name = "kv_near_full.kv_full"
    (before,) = lines(ask(client, metrics=FULL), name)
    answer = ask(client, metrics=FULL, profile="Chat")
    (after,) = lines(answer, name)
    assert (before["threshold_from"], before["held"]) == ("rule", True)
    assert (after["threshold_from"], after["threshold"], after["held"]) == ("profile", 0.98, False)
    said = note(answer["assumptions"], "profile_used")
    assert f"'chat', version {own[1:-1]}, gives 2 thresholds" in said
    assert "latency objectives apply" in said


def test_the_request_comes_before_the_profile(client: TestClient, own: str) -> None:
    thresholds = {"kv_near_full.kv_full": 0.9}
    metrics = {**FULL, "tpot_p95_s": 0.06, "ttft_p95_s": 1.5}
    answer = ask(client, metrics=metrics, profile="chat", thresholds=thresholds, slo={"ttft_p95_s": 3})
    (kv,) = lines(answer, "kv_near_full.kv_full")
    assert (kv["threshold_from"], kv["threshold"]) == ("request", 0.9)
    tpot = [line for line in lines(answer, "tpot_high.tpot_high") if line["threshold_from"] == "profile"]
    assert [(line["threshold"], line["held"]) for line in tpot] == [(0.05, True)]
    ttft = lines(answer, "ttft_high.ttft_high")
    assert {(line["threshold"], line["threshold_from"]) for line in ttft} == {(3, "slo")}
    said = note(answer["assumptions"], "profile_used")
    assert "of which the request replaces 1" in said
    assert "give way to those of the request" in said
    without = ask(client, metrics=metrics, profile="chat")
    assert {(line["threshold"], line["threshold_from"]) for line in lines(without, "ttft_high.ttft_high")} == {(1, "slo")}


def test_an_unknown_profile_is_refused_with_the_nearest(client: TestClient, own: str) -> None:
    found = problem(client.post("/diagnose", json={"metrics": FULL, "profile": "chatt"}), 422, "unknown_name")
    assert (found["errors"][0]["pointer"], found["errors"][0]["expected"]) == ("/profile", "chat")


def test_a_plan_may_name_a_profile(client: TestClient, own: str) -> None:
    plan = {"kind": "diagnose", "name": "slow", "owner": "platform", "request": {"metrics": FULL, "profile": "chat"}}
    answer = client.post("/plans", json=plan)
    assert answer.status_code == 201, answer.text
    assert note(answer.json()["answer"]["assumptions"], "profile_used")


def test_another_process_follows_at_its_next_look(client: TestClient, session_factory: sessionmaker[Session]) -> None:
    other = CatalogHolder()
    with session_factory() as session:
        assert other.refresh(session)
    assert client.post(PATH, json=PROFILE).status_code == 201
    assert other.current.profiles == {}
    with session_factory() as session:
        assert other.refresh(session)
        assert other.current.profile("chat").thresholds == PROFILE["thresholds"]
    assert client.delete(f"{PATH}/chat", headers={"If-Match": "*"}).status_code == 204
    with session_factory() as session:
        assert other.refresh(session)
    assert other.current.profiles == {}
