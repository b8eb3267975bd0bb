"""ETag and If-Match on what is stored: who changes it says which version he has seen (RFC 9110 section 13.1.1, RFC 6585 section 3)."""

import re
from typing import Annotated

from fastapi import Depends, Header

from app.api.errors import Refusal

# A version, and for forms other than JSON the ending that tells them apart: whoever read the document has seen that version, too.
_STRONG = re.compile(r'"(\d{1,18})(?:\.[a-z]+)?"')


def etag(version: int, ending: str = "") -> str:
    """The strong entity tag of a version, or with an ending (`.csv`) of one of its forms."""
    return f'"{version}{ending}"'


def if_match(
    if_match: Annotated[
        str | None,
        Header(max_length=1000, description="ETag of the version that is changed, as `GET` gave it; `*` for whatever is there."),
    ] = None,
) -> frozenset[int] | None:
    """Versions that the caller accepts, None for any (`*`); 428 when the header is missing. A tag that no version has matches none."""
    if if_match is None:
        detail = "Send If-Match with the ETag that GET gave, so that nobody's change is overwritten unseen."
        raise Refusal(428, "precondition_required", "The request needs If-Match", detail)
    if if_match.strip() == "*":
        return None
    tags = (_STRONG.fullmatch(tag.strip()) for tag in if_match.split(","))
    return frozenset(int(tag[1]) for tag in tags if tag)


IfMatchDep = Annotated[frozenset[int] | None, Depends(if_match)]
