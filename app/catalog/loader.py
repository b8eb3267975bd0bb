"""The bundled YAML files as domain values, each validated, with a digest of the whole."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, TypeVar

import yaml
from pydantic import ValidationError

from app.domain.catalog import Catalog, GpuPrice
from app.domain.engine import EngineMemory
from app.domain.hardware import Gpu
from app.domain.llm import Llm
from app.domain.step_constants import StepModel
from app.domain.value import Value

Entry = TypeVar("Entry", Gpu, Llm, GpuPrice, EngineMemory, StepModel)
Parsed = TypeVar("Parsed", bound=Value)
# libyaml reads the files six times faster; a wheel of PyYAML for a rare platform may come without it.
_YAML_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class CatalogFileError(Exception):
    """A catalog file that cannot be read; names the file, the field and what is wrong with it."""


@dataclass(frozen=True)
class BundledCatalog:
    """What the release brings along, by slug; `digest` changes with every change of any file."""

    gpus: Mapping[str, Gpu]
    models: Mapping[str, Llm]
    prices: Mapping[str, GpuPrice]
    engines: Mapping[str, EngineMemory]
    steps: StepModel
    digest: str

    def snapshot(self, version: str) -> Catalog:
        """The catalog of the bundled entries alone."""
        engines = tuple(self.engines.values())
        return Catalog(gpus=self.gpus, models=self.models, prices=self.prices, version=version, engines=engines, steps=self.steps)


def load_bundled(root: Traversable | None = None) -> BundledCatalog:
    """Read and validate every file below `root` (default: this package, once a process); raises CatalogFileError."""
    return _of_this_package() if root is None else _read(root)


@cache
def _of_this_package() -> BundledCatalog:
    return _read(files("app.catalog"))


def _read(root: Traversable) -> BundledCatalog:
    digest = hashlib.sha256()
    gpus = _folder(root / "gpus", Gpu, digest)
    models = _folder(root / "models", Llm, digest)
    prices = _folder(root / "prices", GpuPrice, digest)
    engines = _folder(root / "engines", EngineMemory, digest)
    steps = _folder(root / "steps", StepModel, digest)
    if len(steps) != 1:
        raise CatalogFileError(f"steps/: {len(steps)} files where one holds the constants of the step-time model")
    for slug, price in prices.items():
        if price.gpu not in gpus:
            raise CatalogFileError(f"prices/{slug}.yaml: gpu: {price.gpu!r} is not a file in gpus/")
    return BundledCatalog(gpus, models, prices, engines, next(iter(steps.values())), digest.hexdigest())


def parse_entry(text: bytes, entry_type: type[Parsed], file_name: str) -> Parsed:
    """One file as a domain value; raises CatalogFileError with the file's name and the field."""
    return _validated(_content(text, file_name), entry_type, file_name)


def _content(text: bytes, file_name: str) -> Any:
    try:
        return yaml.load(text, _YAML_LOADER)  # noqa: S506 - both loaders are safe ones
    except yaml.YAMLError as error:
        raise CatalogFileError(f"{file_name}: not YAML: {error}") from error


def _validated(given: Any, entry_type: type[Parsed], file_name: str) -> Parsed:
    try:
        return entry_type.model_validate(given)
    except ValidationError as error:
        faults = "; ".join(f"{'.'.join(map(str, fault['loc'])) or 'entry'}: {fault['msg']}" for fault in error.errors())
        raise CatalogFileError(f"{file_name}: {faults}") from error


def _folder(folder: Traversable, entry_type: type[Entry], digest: Any) -> dict[str, Entry]:
    given: dict[str, Any] = {}
    for file in sorted((file for file in folder.iterdir() if file.name.endswith(".yaml")), key=lambda file: file.name):
        name = f"{folder.name}/{file.name}"
        text = file.read_bytes()
        digest.update(name.encode() + b"\0" + text + b"\0")
        given[file.name.removesuffix(".yaml")] = _content(text, name)
    entries: dict[str, Entry] = {}
    for slug in given:
        name = f"{folder.name}/{slug}.yaml"
        entry = _validated(_with_base(slug, given, name), entry_type, name)
        if slug != entry.slug:
            raise CatalogFileError(f"{name}: slug: {entry.slug!r} is not the name of the file")
        entries[entry.slug] = entry
    return entries


def _with_base(slug: str, given: dict[str, Any], file_name: str, depth: int = 0) -> Any:
    """The content of a file; where it is `based_on` another of its folder, what it says is put over what that one says, map by map."""
    own = given[slug]
    if not isinstance(own, dict) or "based_on" not in own:
        return own
    base = own["based_on"]
    if base not in given or depth > len(given):
        raise CatalogFileError(f"{file_name}: based_on: {base!r} is no other file of the folder")
    return _over({name: value for name, value in own.items() if name != "based_on"}, _with_base(base, given, file_name, depth + 1))


def _over(own: dict[str, Any], base: Any) -> dict[str, Any]:
    merged = dict(base)
    for name, value in own.items():
        merged[name] = _over(value, merged[name]) if isinstance(value, dict) and isinstance(merged.get(name), dict) else value
    return merged
