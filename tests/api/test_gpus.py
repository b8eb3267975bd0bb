"""`/gpus` over HTTP: reading by name, own entries under version control, the snapshot following at once."""

from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy.orm import Session, sessionmaker

from app.db import schema
from app.db.session import open_engine
from app.main import create_app
from app.services import api_keys
from app.services.catalog import CatalogHolder, sync_bundled
from app.settings import Settings

OWN: dict[str, Any] = {
    "slug": "our-asic-96gb",
    "name": "Our ASIC",
    "vendor": "ACME",
    "memory_bytes": 96 * 2**30,
    "memory_bandwidth_bytes_per_s": 2.5e12,
    "peak_flops_per_s": {"bf16": 400e12},
}


def own_slugs(client: TestClient) -> list[str]:
    return [item["slug"] for item in client.get("/gpus", params={"origin": "own"}).json()["items"]]


@pytest.fixture
def own(client: TestClient) -> str:
    """ETag of an own entry."""
    answer = client.post("/gpus", json=OWN)
    assert answer.status_code == 201, answer.text
    return str(answer.headers["ETag"])


@pytest.mark.parametrize("name", ["h100-sxm-80gb", "H100-SXM-80GB", "NVIDIA H100 SXM5 80GB", "nvidia h100 sxm5 80gb"])
def test_read_by_slug_and_name(client: TestClient, name: str) -> None:
    answer = client.get(f"/gpus/{name}")
    assert answer.status_code == 200
    body = answer.json()
    assert (body["slug"], body["origin"], body["entry"]["memory_bytes"]) == ("h100-sxm-80gb", "bundled", 85029615043)
    assert body["entry"]["sources"]
    assert answer.headers["ETag"] == f'"{body["version"]}"'


def test_a_close_miss_names_the_nearest(client: TestClient) -> None:
    answer = client.get("/gpus/h100-sxm-80g")
    assert answer.status_code == 404
    assert "h100-sxm-80gb" in answer.json()["detail"]
    assert "h100-sxm-80gb" in answer.json()["errors"][0]["expected"]


def test_a_figure_that_is_not_known_is_null(client: TestClient) -> None:
    entry = client.get("/gpus/gaudi3-128gb").json()["entry"]
    assert entry["memory_bytes"] is None
    assert entry["peak_flops_per_s"]["int4"] is None


def test_an_own_entry_is_added_and_found_everywhere(client: TestClient) -> None:
    version_before = client.app.state.catalog.current.version  # type: ignore[attr-defined]
    answer = client.post("/gpus", json=OWN)
    assert answer.status_code == 201
    body = answer.json()
    assert answer.headers["Location"] == "/gpus/our-asic-96gb"
    assert (body["origin"], body["entry"]["sources"]) == ("own", ["own entry"])
    assert body["entry"]["peak_flops_per_s"]["bf16"] == 400e12
    assert client.get("/gpus/our-asic-96gb").json() == body
    assert own_slugs(client) == ["our-asic-96gb"]
    catalog = client.app.state.catalog.current  # type: ignore[attr-defined]
    assert catalog.gpu("Our ASIC").memory_bytes == OWN["memory_bytes"]
    assert catalog.version != version_before


def test_stated_sources_are_kept(client: TestClient) -> None:
    answer = client.post("/gpus", json={**OWN, "sources": ["data sheet 12"]})
    assert answer.json()["entry"]["sources"] == ["data sheet 12"]


@pytest.mark.parametrize(
    ("changed", "pointer"),
    [
        ({"slug": "h100-sxm-80gb"}, "/slug"),
        ({"name": "nvidia h100 SXM5 80GB"}, "/name"),
        ({"name": "h100-sxm-80gb"}, "/name"),
    ],
)
def test_an_own_entry_shadows_no_other(client: TestClient, changed: dict[str, Any], pointer: str) -> None:
    answer = client.post("/gpus", json={**OWN, **changed})
    assert (answer.status_code, answer.json()["code"]) == (409, "already_exists")
    assert answer.json()["errors"][0]["pointer"] == pointer
    assert own_slugs(client) == []


def test_an_own_entry_is_added_once(client: TestClient, own: str) -> None:
    answer = client.post("/gpus", json=OWN)
    assert (answer.status_code, answer.json()["code"]) == (409, "already_exists")


@pytest.mark.parametrize(
    ("changed", "pointer"),
    [
        ({"slug": "Our ASIC"}, "/slug"),
        ({"memory_bytes": 0}, "/memory_bytes"),
        ({"memory_bytes": 1.5}, "/memory_bytes"),
        ({"peak_flops_per_s": {"bf16": -1}}, "/peak_flops_per_s/bf16"),
        ({"memory_gb": 96}, "/memory_gb"),
    ],
)
def test_an_invalid_entry_is_refused_with_its_field(client: TestClient, changed: dict[str, Any], pointer: str) -> None:
    answer = client.post("/gpus", json={**OWN, **changed})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == pointer


def test_an_own_entry_is_replaced_as_a_whole(client: TestClient, own: str) -> None:
    changed = {"slug": OWN["slug"], "name": "Our ASIC, second try", "memory_bytes": 128 * 2**30}
    answer = client.put(f"/gpus/{OWN['slug']}", json=changed, headers={"If-Match": own})
    assert answer.status_code == 200
    assert answer.headers["ETag"] != own
    assert answer.json()["entry"]["vendor"] is None
    assert client.get(f"/gpus/{OWN['slug']}").json() == answer.json()
    assert client.app.state.catalog.current.gpu(OWN["slug"]).memory_bytes == 128 * 2**30  # type: ignore[attr-defined]


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
def test_a_change_needs_the_version_that_was_read(client: TestClient, own: str, method: str) -> None:
    def change(headers: dict[str, str]) -> Any:
        return client.request(method, f"/gpus/{OWN['slug']}", json=OWN if method == "PUT" else None, headers=headers)

    missing = change({})
    assert (missing.status_code, missing.json()["code"]) == (428, "precondition_required")
    for stale in ('"0"', "W/" + own, "garbage", '"abc"', ""):
        refused = change({"If-Match": stale})
        assert (refused.status_code, refused.json()["code"]) == (412, "stale_version"), stale
    assert client.get(f"/gpus/{OWN['slug']}").headers["ETag"] == own
    assert change({"If-Match": f'"0", {own}'}).status_code in (200, 204)


def test_the_second_of_two_writers_is_told(client: TestClient, own: str) -> None:
    path = f"/gpus/{OWN['slug']}"
    assert client.put(path, json={**OWN, "tdp_watts": 300}, headers={"If-Match": own}).status_code == 200
    assert client.put(path, json={**OWN, "tdp_watts": 400}, headers={"If-Match": own}).status_code == 412
    assert client.get(path).json()["entry"]["tdp_watts"] == 300


def test_an_own_entry_is_removed(client: TestClient, own: str) -> None:
    answer = client.delete(f"/gpus/{OWN['slug']}", headers={"If-Match": own})
    assert (answer.status_code, answer.content) == (204, b"")
    assert client.get(f"/gpus/{OWN['slug']}").status_code == 404
    assert OWN["slug"] not in client.app.state.catalog.current.gpus  # type: ignore[attr-defined]


def test_the_version_of_a_removed_entry_never_comes_back(client: TestClient, own: str) -> None:
    path = f"/gpus/{OWN['slug']}"
    client.delete(path, headers={"If-Match": "*"})
    assert client.post("/gpus", json=OWN).headers["ETag"] != own
    assert client.delete(path, headers={"If-Match": own}).status_code == 412


def test_bundled_entries_are_read_only(client: TestClient) -> None:
    path = "/gpus/h100-sxm-80gb"
    headers = {"If-Match": client.get(path).headers["ETag"]}
    for answer in (client.put(path, json={**OWN, "slug": "h100-sxm-80gb"}, headers=headers), client.delete(path, headers=headers)):
        assert (answer.status_code, answer.json()["code"]) == (409, "read_only")
    assert client.get(path).json()["entry"]["memory_bytes"] == 85029615043


def test_what_is_not_there_cannot_be_changed(client: TestClient) -> None:
    headers = {"If-Match": "*"}
    for answer in (
        client.put("/gpus/nowhere", json={**OWN, "slug": "nowhere"}, headers=headers),
        client.delete("/gpus/nowhere", headers=headers),
    ):
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


def test_the_slug_of_an_entry_stays(client: TestClient, own: str) -> None:
    answer = client.put(f"/gpus/{OWN['slug']}", json={**OWN, "slug": "other"}, headers={"If-Match": own})
    assert answer.status_code == 422
    assert answer.json()["errors"][0] | {"detail": ""} == {
        "location": "body",
        "pointer": "/slug",
        "code": "invalid_input",
        "detail": "",
        "expected": OWN["slug"],
        "value": "other",
    }


def test_a_refused_change_leaves_the_snapshot(client: TestClient) -> None:
    before = client.app.state.catalog.current  # type: ignore[attr-defined]
    assert client.post("/gpus", json={**OWN, "slug": "h100-sxm-80gb"}).status_code == 409
    assert client.app.state.catalog.current is before  # type: ignore[attr-defined]


def test_another_process_sees_the_change_at_its_next_look(client: TestClient, session_factory: sessionmaker[Session]) -> None:
    other = CatalogHolder()
    with session_factory() as session:
        assert other.refresh(session)
    client.post("/gpus", json=OWN)
    assert OWN["slug"] not in other.current.gpus
    with session_factory() as session:
        assert other.refresh(session)
        assert other.current.gpu(OWN["slug"]).vendor == "ACME"
        sync_bundled(session)  # the next start of any process
        assert not other.refresh(session)


def test_the_snapshot_follows_the_commit(own_database_url: str, settings: Settings) -> None:
    """On connections of their own: read one moment too early, the snapshot would miss what is not committed yet."""
    engine = open_engine(own_database_url)
    schema.upgrade(engine)
    app = create_app(settings, session_factory=sessionmaker(engine))
    with TestClient(app) as client:
        assert client.post("/gpus", json=OWN).status_code == 201
        assert app.state.catalog.current.gpu("our-asic-96gb").vendor == "ACME"
        assert client.delete("/gpus/our-asic-96gb", headers={"If-Match": "*"}).status_code == 204
        assert app.state.catalog.current.gpus == {}
    engine.dispose()


def test_a_reader_cannot_change_the_catalog(settings: Settings, session_factory: sessionmaker[Session]) -> None:
    with session_factory.begin() as session:
        _, secret = api_keys.create(session, name="reader", scopes=["read"])
    app = create_app(settings.model_copy(update={"require_api_key": True}), session_factory=session_factory)
    with TestClient(app, headers={"Authorization": f"Bearer {secret}"}) as client:
        assert client.get("/gpus/t4-16gb").status_code == 200
        for answer in (
            client.post("/gpus", json=OWN),
            client.put("/gpus/t4-16gb", json=OWN, headers={"If-Match": "*"}),
            client.delete("/gpus/t4-16gb", headers={"If-Match": "*"}),
        ):
            assert (answer.status_code, answer.json()["code"]) == (403, "scope_missing")
        assert client.post("/models", json={}).status_code == 403
    with TestClient(app) as client:
        assert client.get("/gpus").status_code == 401
