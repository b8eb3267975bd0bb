"""The answer to a request that is kept, so that its repetition changes nothing and gets the same answer."""

from collections.abc import Mapping

from app.domain.json_difference import JsonObject
from app.domain.value import Value


class RecordedAnswer(Value):
    """An answer as it was given."""

    status: int
    """HTTP status."""
    headers: Mapping[str, str]
    """Headers that belong to the answer itself."""
    body: JsonObject
    """Body."""
