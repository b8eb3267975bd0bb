"""Which form of an answer a caller gets (RFC 9110 section 12), and whether he has it already (section 13.1.2)."""

import re
from collections.abc import Sequence

_WEIGHT = re.compile(r"0(\.\d{0,3})?|1(\.0{0,3})?")
_TAG = re.compile(r'(?:W/)?("[^"]*")')


def preferred(accept: str, offered: Sequence[str]) -> str | None:
    """The offered media type that the Accept header likes best, None when it takes none of them.

    Of ranges that match, the most specific decides; of types liked equally, the one named more specifically, then the one offered first.
    Parameters other than `q` (charset, variant) are not looked at; an empty header takes anything.
    """
    if not accept.strip():
        return offered[0]
    ranges = [found for member in accept.split(",") if (found := _media_range(member))]
    best: tuple[float, int] = (0.0, -1)
    chosen = None
    for media_type in offered:
        matching = [(specificity, weight) for name, weight in ranges if (specificity := _specificity(name, media_type)) >= 0]
        if not matching:
            continue
        specificity, weight = max(matching)
        if weight > 0 and (weight, specificity) > best:
            best, chosen = (weight, specificity), media_type
    return chosen


def already_has(if_none_match: str | None, etag: str) -> bool:
    """Whether If-None-Match names this entity tag, or any (`*`); compared weakly."""
    return if_none_match is not None and (if_none_match.strip() == "*" or etag in _TAG.findall(if_none_match))


def _media_range(member: str) -> tuple[str, float] | None:
    name, *parameters = (part.strip().lower() for part in member.split(";"))
    if name.count("/") != 1:
        return None
    for parameter in parameters:
        key, _, value = parameter.partition("=")
        if key.strip() == "q":
            return (name, float(value)) if _WEIGHT.fullmatch(value.strip()) else None
    return name, 1.0


def _specificity(media_range: str, media_type: str) -> int:
    """2 for the type itself, 1 for its main type, 0 for anything, -1 for another type."""
    if media_range == media_type:
        return 2
    if media_range == media_type.partition("/")[0] + "/*":
        return 1
    return 0 if media_range == "*/*" else -1
