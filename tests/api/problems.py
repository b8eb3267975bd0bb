"""What every refusal has to be, whatever is refused."""

from typing import Any

from httpx2 import Response


def problem(answer: Response, status: int, code: str) -> dict[str, Any]:
    """The problem in an answer, after the checks that hold for each (RFC 9457)."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    found: dict[str, Any] = answer.json()
    assert found["code"] == code
    assert found["type"] == f"/problems/{code}"
    assert found["status"] == status
    assert found["title"]
    assert found["detail"]
    assert found["request_id"] == answer.headers["x-request-id"]
    return found
