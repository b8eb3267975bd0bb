"""The habits that tools check: layers, format, lint, types."""

import subprocess
import sys
from pathlib import Path

import pytest

CLONE = Path(__file__).parent.parent
MOST_LINES = 300
"""A longer file is a sign that two things live in it."""
SAY_NOTHING = {"utils", "util", "helpers", "helper", "common", "misc", "base", "manager", "kit"}
SOURCES = sorted(file for folder in ("app", "migrations", "tests") for file in (CLONE / folder).rglob("*.py"))
BIN = Path(sys.executable).parent


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(["ruff", "check"], id="lint"),
        pytest.param(["ruff", "format", "--check"], id="format"),
        pytest.param(["lint-imports"], id="layers"),
        pytest.param(["mypy"], id="types", marks=pytest.mark.slow),
    ],
)
def test_the_code_passes(command: list[str]) -> None:
    done = subprocess.run([BIN / command[0], *command[1:]], cwd=CLONE, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_module_holds_one_thing_and_its_name_says_which() -> None:
    assert [file.name for file in SOURCES if SAY_NOTHING.intersection(file.stem.split("_"))] == []
    lengths = {file.name: len(file.read_text(encoding="utf-8").splitlines()) for file in SOURCES}
    assert {name: length for name, length in lengths.items() if length > MOST_LINES} == {}
