"""The habits that tools check: layers, format, lint, types."""

import subprocess
import sys
from pathlib import Path

import pytest

CLONE = Path(__file__).parent.parent
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
