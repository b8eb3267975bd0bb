"""What several tests of the HTTP side ask for."""

from typing import Any

import pytest
from fastapi.testclient import TestClient
from httpx2 import Response

from tests.api.plan_bodies import Save, body
from tests.api.worked_examples import Ask


@pytest.fixture
def save(client: TestClient) -> Save:
    """Save a plan, changed where the test says."""

    def save(headers: dict[str, str] | None = None, **changes: Any) -> Response:
        answer = client.post("/plans", json=body(**changes), headers=headers)
        assert answer.status_code == 201, answer.text
        return answer

    return save


@pytest.fixture
def ask(client: TestClient) -> Ask:
    """Ask for a calculation that has to be answered, with its working."""

    def post(path: str, **body: Any) -> dict[str, Any]:
        answer = client.post(path, json=body)
        assert answer.status_code == 200, answer.text
        parsed: dict[str, Any] = answer.json()
        assert parsed["summary"]
        assert parsed["working"]
        return parsed

    return post
