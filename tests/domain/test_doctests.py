"""The numbers in the docstrings of the domain are true."""

import doctest
import importlib
import pkgutil

import pytest

import app.domain

MODULES = [f"app.domain.{module.name}" for module in pkgutil.iter_modules(app.domain.__path__)]


@pytest.mark.parametrize("name", MODULES)
def test_docstring_numbers(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_there_are_some() -> None:
    assert sum(doctest.testmod(importlib.import_module(name)).attempted for name in MODULES) >= 8
