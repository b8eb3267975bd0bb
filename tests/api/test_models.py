"""`/models` over HTTP: filters, reading by Hugging Face id, own entries that shadow no bundled one."""

from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.catalog.loader import load_bundled
from app.domain.catalog_entry import AttentionKind
from app.domain.kv_cache import attention_kind
from app.domain.llm import Llm

BUNDLED = load_bundled().models
OWN: dict[str, Any] = {
    "slug": "our-7b",
    "hf_id": "acme/Our-7B",
    "family": "Ours",
    "num_params": 7_000_000_000,
    "num_active_params": 7_000_000_000,
    "hidden_size": 4096,
    "vocab_size": 32000,
    "layer_groups": [
        {
            "num_layers": 32,
            "mixer": {"kind": "attention", "num_heads": 32, "num_kv_heads": 8, "key_head_dim": 128, "value_head_dim": 128},
            "feed_forward": [{"kind": "dense", "intermediate_size": 14336}],
        }
    ],
}


def slugs(client: TestClient, **query: Any) -> set[str]:
    """All that the filter finds, over as many pages as it takes."""
    found: set[str] = set()
    token: str | None = None
    while True:
        answer = client.get("/models", params={"limit": 200, **query, **({"page_token": token} if token else {})})
        assert answer.status_code == 200, answer.text
        found |= {item["slug"] for item in answer.json()["items"]}
        token = answer.json()["next_page_token"]
        if token is None:
            return found


@pytest.fixture
def own(client: TestClient) -> str:
    """ETag of an own entry."""
    answer = client.post("/models", json=OWN)
    assert answer.status_code == 201, answer.text
    return str(answer.headers["ETag"])


def test_the_pages_hold_all(client: TestClient) -> None:
    assert slugs(client) == set(BUNDLED)


def test_pages_go_on_where_the_last_one_ended(client: TestClient) -> None:
    seen: list[str] = []
    token: str | None = None
    for _ in range(6):
        answer = client.get("/models", params={"limit": 60, **({"page_token": token} if token else {})}).json()
        seen += [item["slug"] for item in answer["items"]]
        token = answer["next_page_token"]
    assert token is None
    assert len(seen) == len(set(seen)) == 342


def has_attention(model: Llm, kind: AttentionKind) -> bool:
    """The filter said once more, over the domain value."""
    mixers = [group.mixer for group in model.layer_groups or () if group.mixer]
    if kind == "sliding_window":
        return any(getattr(mixer, "window_tokens", None) for mixer in mixers)
    words = attention_kind(model).split()
    return words[0] == "hybrid" if kind == "recurrent" else kind in words


@pytest.mark.parametrize("kind", ["mha", "gqa", "mqa", "mla", "compressed", "sliding_window", "recurrent"])
def test_filter_by_attention(client: TestClient, kind: AttentionKind) -> None:
    expected = {slug for slug, model in BUNDLED.items() if has_attention(model, kind)}
    assert expected
    assert slugs(client, attention=kind) == expected


def test_filter_by_experts(client: TestClient) -> None:
    experts = slugs(client, moe=True)
    assert {"deepseek-v3", "gpt-oss-120b", "qwen3.8-flash-next", "deepseek-v4.1-flash"} <= experts
    assert slugs(client, moe=False) == set(BUNDLED) - experts
    assert "llama-3.1-70b" not in experts


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"family": "gpt-OSS"}, {"gpt-oss-20b", "gpt-oss-120b"}),
        ({"q": "gpt-OSS"}, {"gpt-oss-20b", "gpt-oss-120b"}),
        ({"q": "llama-3.1-70b-INSTRUCT"}, {"llama-3.1-70b"}),
        ({"min_num_params": 1_000_000_000_000, "family": "DeepSeek"}, {"deepseek-v4-pro"}),
        ({"max_num_params": 500_000_000}, {slug for slug, model in BUNDLED.items() if model.num_params <= 500_000_000}),
        ({"origin": "own"}, set()),
    ],
)
def test_filters(client: TestClient, query: dict[str, Any], expected: set[str]) -> None:
    assert slugs(client, **query) == expected


def test_limits_of_the_size_belong_to_the_range(client: TestClient) -> None:
    size = BUNDLED["llama-3.1-70b"].num_params
    assert "llama-3.1-70b" in slugs(client, min_num_params=size, max_num_params=size)
    assert "llama-3.1-70b" not in slugs(client, min_num_params=size + 1)
    assert "llama-3.1-70b" not in slugs(client, max_num_params=size - 1)


@pytest.mark.parametrize(
    "name",
    [
        "llama-3.1-70b",
        "Llama-3.1-70B",
        "meta-llama/Llama-3.1-70B",
        "meta-llama/Llama-3.1-70B-Instruct",
        "META-LLAMA/llama-3.1-70b-instruct",
        "meta-llama%2FLlama-3.1-70B-Instruct",
    ],
)
def test_read_by_slug_and_hub_id(client: TestClient, name: str) -> None:
    answer = client.get(f"/models/{name}")
    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert (body["slug"], body["origin"], body["entry"]["num_params"]) == ("llama-3.1-70b", "bundled", 70553706496)
    assert answer.headers["ETag"] == f'"{body["version"]}"'


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("llama-3.1-71b", "llama-3.1-70b"),
        ("meta-llama/Llama-3.1-70B-Instuct", "llama-3.1-70b"),
        ("deepseek-ai/DeepSeek-V3.5", "deepseek-v3"),
    ],
)
def test_a_close_miss_names_the_nearest(client: TestClient, name: str, nearest: str) -> None:
    answer = client.get(f"/models/{name}")
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    assert nearest in answer.json()["errors"][0]["expected"].split(", ")


@pytest.mark.parametrize("name", ["zzzz", "a/b/c", "import", "%20"])
def test_a_far_miss_names_none(client: TestClient, name: str) -> None:
    answer = client.get(f"/models/{name}")
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


def test_layer_groups_come_back_as_they_are_bundled(client: TestClient) -> None:
    for slug in ("deepseek-v4-flash", "kimi-linear-48b-a3b", "gemma-4-e2b", "nemotron-h-8b", "qwen3.8-flash-next"):
        assert Llm.model_validate(client.get(f"/models/{slug}").json()["entry"]) == BUNDLED[slug]


def test_an_own_model_is_added_and_found_everywhere(client: TestClient) -> None:
    answer = client.post("/models", json=OWN)
    assert answer.status_code == 201, answer.text
    body = answer.json()
    assert answer.headers["Location"] == "/models/our-7b"
    assert (body["origin"], body["entry"]["sources"]) == ("own", ["own entry"])
    assert client.get("/models/ACME/our-7b").json() == body
    assert slugs(client, origin="own") == {"our-7b"}
    assert client.app.state.catalog.current.model("acme/our-7b").num_layers == 32  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("changed", "pointer"),
    [
        ({"slug": "llama-3.1-70b"}, "/slug"),
        ({"hf_id": "META-llama/llama-3.1-70b"}, "/hf_id"),
        ({"hf_id": "meta-llama/Llama-3.1-70B-Instruct"}, "/hf_id"),
        ({"hf_id": "llama-3.1-70b"}, "/hf_id"),
        ({"hf_aliases": ["acme/x", "openai/GPT-oss-120b"]}, "/hf_aliases/1"),
    ],
)
def test_an_own_model_shadows_no_bundled_one(client: TestClient, changed: dict[str, Any], pointer: str) -> None:
    answer = client.post("/models", json={**OWN, **changed})
    assert (answer.status_code, answer.json()["code"]) == (409, "already_exists")
    assert answer.json()["errors"][0]["pointer"] == pointer
    assert slugs(client, origin="own") == set()


def test_two_own_models_share_no_hub_id(client: TestClient, own: str) -> None:
    answer = client.post("/models", json={**OWN, "slug": "our-other-7b"})
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (409, "/hf_id")


def test_replace_and_remove(client: TestClient, own: str) -> None:
    assert client.put("/models/our-7b", json=OWN).status_code == 428
    replaced = client.put("/models/our-7b", json={**OWN, "license": "mit"}, headers={"If-Match": own})
    assert (replaced.status_code, replaced.json()["entry"]["license"]) == (200, "mit")
    assert client.put("/models/our-7b", json=OWN, headers={"If-Match": own}).status_code == 412
    taken = client.put("/models/our-7b", json={**OWN, "hf_id": "openai/gpt-oss-20b"}, headers={"If-Match": "*"})
    assert (taken.status_code, taken.json()["code"]) == (409, "already_exists")
    assert client.delete("/models/our-7b", headers={"If-Match": own}).status_code == 412
    assert client.delete("/models/our-7b", headers={"If-Match": replaced.headers["ETag"]}).status_code == 204
    assert client.get("/models/acme/Our-7B").status_code == 404


def test_bundled_models_are_read_only(client: TestClient) -> None:
    headers = {"If-Match": "*"}
    for answer in (
        client.put("/models/llama-3.1-70b", json={**OWN, "slug": "llama-3.1-70b"}, headers=headers),
        client.delete("/models/llama-3.1-70b", headers=headers),
    ):
        assert (answer.status_code, answer.json()["code"]) == (409, "read_only")


@pytest.mark.parametrize(
    ("changed", "pointer"),
    [
        ({"num_active_params": 8_000_000_000}, ""),
        ({"layer_groups": []}, ""),
        ({"layer_groups": [{"num_layers": 0}]}, "/layer_groups/0/num_layers"),
        ({"layer_groups": [{"num_layers": 1, "mixer": {"kind": "alchemy"}}]}, "/layer_groups/0/mixer/kind"),
        ({"num_layers": 32}, "/num_layers"),
    ],
)
def test_an_invalid_model_is_refused_with_its_field(client: TestClient, changed: dict[str, Any], pointer: str) -> None:
    answer = client.post("/models", json={**OWN, **changed})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == pointer
