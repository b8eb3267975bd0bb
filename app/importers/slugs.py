"""A catalog name from a repository id."""

import re


def slug_of(name: str) -> str:
    """Lower case, without the organisation, other characters as dashes: `Qwen/Qwen3-8B` -> `qwen3-8b`."""
    text = re.sub(r"[^a-z0-9._-]+", "-", name.rpartition("/")[2].lower())[:100].strip("-._")
    return text or "imported"
