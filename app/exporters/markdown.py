"""Foreign text in Markdown (CommonMark with GitHub's tables): shown as it is, never as markup."""

import re
from collections.abc import Iterable, Sequence

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
# Marks that turn the direction of writing would let a name rearrange what stands around it.
_DIRECTION = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_MARKUP = re.compile(r"[\\`*\[\]|~$#]|(?<![^\W_])_|_(?![^\W_])")
_BLOCK_START = re.compile(r"^([-+=]|\d{1,9}(?=[.)]))")
_PLAIN_NAME = re.compile(r"[A-Za-z0-9._-]+")


def escape(text: str) -> str:
    """The text on one line, for a cell or the middle of a line."""
    one_line = _DIRECTION.sub("", _CONTROL.sub(" ", text)).strip()
    without_html = one_line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _MARKUP.sub(r"\\\g<0>", without_html)


def line(text: str) -> str:
    """The text on one line, for the start of a line, where dashes and numbers would begin a list, a rule or a heading."""
    return _BLOCK_START.sub(_escaped_start, escape(text))


def quote(text: str) -> str:
    """Text of several lines as a block quote with the same lines."""
    lines = re.split(r"\r\n|[\n\r\u2028\u2029]", text.strip())
    # Two spaces at the end keep the line break.
    return "\n".join(f"> {line(each)}  ".rstrip() if not each.strip() else f"> {line(each)}  " for each in lines)


def code(name: str) -> str:
    """The name of a field in code type."""
    return f"`{name}`" if _PLAIN_NAME.fullmatch(name) else escape(name)


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of cells that are Markdown already."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _escaped_start(found: re.Match[str]) -> str:
    start = found[0]
    return f"\\{start}" if not start.isdecimal() else f"{start}\\"
