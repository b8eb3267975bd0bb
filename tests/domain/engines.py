"""Engines by version for tests of the memory rules."""

from typing import Any

from app.domain.deployment import Deployment, Speculative
from app.domain.engine import EngineMemory
from app.domain.engine_budget import pool_of
from app.domain.engine_defaults import settings_of
from app.domain.paging import Pool
from tests.domain.shapes import BUNDLED, CATALOG, H100


def engine(name: str, version: str | None = None) -> EngineMemory:
    """The rules of an engine in a version."""
    found = CATALOG.engine(name, version)
    assert found is not None
    return found


def pool(model: str, version: str, kv_cache: str = "auto", *, drafts: int = 0, name: str = "vllm", **given: Any) -> Pool:
    """How an engine cuts its KV memory for a model of the catalog."""
    speculative = Speculative(num_draft_tokens=drafts, acceptance_ratio=0.5) if drafts else None
    deployment = Deployment.model_validate({"engine": name, "kv_cache": kv_cache, "speculative": speculative, **given})
    llm, rules = BUNDLED.models[model], engine(name, version)
    found = pool_of(llm, rules, deployment, settings_of(rules, H100, deployment, None), "bf16" if kv_cache == "auto" else "fp8")
    assert found is not None
    return found
