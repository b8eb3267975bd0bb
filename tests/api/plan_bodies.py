"""Bodies of plans, and the plans in an answer."""

from collections.abc import Callable
from typing import Any

from httpx2 import Response

MEMORY = {"model": "llama-3.1-70b", "gpu": "h100-sxm-80gb", "deployment": {"tp": 4, "weights": "fp8"}}
Json = dict[str, Any]
Save = Callable[..., Response]


def body(**changes: Any) -> Json:
    return {"kind": "memory", "name": "70B on H100", "owner": "platform", "request": MEMORY, **changes}


def ids(answer: Response) -> list[str]:
    assert answer.status_code == 200, answer.text
    return [plan["id"] for plan in answer.json()["items"]]
