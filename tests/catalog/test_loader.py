"""Reading the bundled files: complete, one name each, faults told with file and field, nothing lost on the way through YAML."""

import shutil
import time
from pathlib import Path

import pytest
import yaml

from app.catalog import loader
from app.catalog.loader import CatalogFileError, load_bundled, parse_entry
from app.domain.errors import MissingFigure
from app.domain.hardware import Gpu
from app.domain.llm import Llm

PACKAGE = Path(loader.__file__).parent
BUNDLED = load_bundled()


def test_counts() -> None:
    assert (len(BUNDLED.gpus), len(BUNDLED.models), len(BUNDLED.prices)) == (63, 342, 32)


def test_every_file_is_read() -> None:
    files = sorted(
        path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*") if path.is_file() and path.suffix in (".yaml", ".yml")
    )
    named = [("gpus", BUNDLED.gpus), ("models", BUNDLED.models), ("prices", BUNDLED.prices), ("engines", BUNDLED.engines)]
    named.append(("steps", {BUNDLED.steps.slug: BUNDLED.steps}))
    assert files == sorted(f"{folder}/{slug}.yaml" for folder, entries in named for slug in entries)


@pytest.mark.parametrize("path", sorted(PACKAGE.glob("*/*.yaml")), ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_file_says_each_thing_once(path: Path) -> None:
    """YAML lets the last of two equal keys win in silence."""
    for node in walk(yaml.compose(path.read_text(encoding="utf-8"), yaml.CSafeLoader)):
        if isinstance(node, yaml.MappingNode):
            keys = [key.value for key, _ in node.value]
            assert len(keys) == len(set(keys))


def walk(node: yaml.Node | None) -> list[yaml.Node]:
    if node is None:
        return []
    children = node.value if isinstance(node, yaml.SequenceNode) else []
    if isinstance(node, yaml.MappingNode):
        children = [value for _, value in node.value]
    return [node, *(found for child in children for found in walk(child))]


def test_models_are_told_apart_by_hub_id_in_any_case() -> None:
    assert all(model.hf_id for model in BUNDLED.models.values())
    ids = [name.casefold() for model in BUNDLED.models.values() for name in (model.hf_id or "", *model.hf_aliases)]
    assert len(ids) == len(set(ids)) > len(BUNDLED.models)
    assert not set(ids) & set(BUNDLED.models)


def test_gpus_are_told_apart_by_name_in_any_case() -> None:
    names = {gpu.name.casefold() for gpu in BUNDLED.gpus.values()}
    assert len(names) == len(BUNDLED.gpus)
    assert not names & set(BUNDLED.gpus)


@pytest.mark.parametrize("slug", sorted(BUNDLED.models))
def test_model_survives_yaml(slug: str) -> None:
    model = BUNDLED.models[slug]
    text = yaml.safe_dump(model.model_dump(mode="json", exclude_none=True), allow_unicode=True)
    assert parse_entry(text.encode(), Llm, slug) == model


@pytest.mark.parametrize("slug", sorted(BUNDLED.gpus))
def test_gpu_survives_yaml(slug: str) -> None:
    gpu = BUNDLED.gpus[slug]
    text = yaml.safe_dump(gpu.model_dump(mode="json", exclude_none=True), allow_unicode=True)
    assert parse_entry(text.encode(), Gpu, slug) == gpu


@pytest.mark.parametrize("slug", sorted(BUNDLED.gpus))
def test_a_figure_that_is_not_known_is_refused_by_name(slug: str) -> None:
    gpu = BUNDLED.gpus[slug]
    figures = {
        "memory_bytes": (gpu.memory_bytes, gpu.require_memory_bytes),
        "memory_bandwidth_bytes_per_s": (gpu.memory_bandwidth_bytes_per_s, gpu.require_bandwidth_bytes_per_s),
        "peak_flops_per_s.bf16": (gpu.peak_flops_per_s.bf16, lambda: gpu.require_peak_flops_per_s("bf16")),
        "peak_flops_per_s.fp8": (gpu.peak_flops_per_s.fp8, lambda: gpu.require_peak_flops_per_s("fp8")),
        "peak_flops_per_s.fp4": (gpu.peak_flops_per_s.fp4, lambda: gpu.require_peak_flops_per_s("fp4")),
    }
    for name, (figure, require) in figures.items():
        if figure is None:
            with pytest.raises(MissingFigure, match=rf"{name} of {slug}") as refused:
                require()
            assert refused.value.value == slug
        else:
            assert require() == figure


def test_the_gpus_without_memory_or_bandwidth_are_the_known_ones() -> None:
    assert {slug for slug, gpu in BUNDLED.gpus.items() if gpu.memory_bytes is None} == {
        "l2-24gb",
        "gh200-144gb",
        "gaudi2-96gb",
        "gaudi3-128gb",
        "arc-pro-b60-24gb",
        "tpu-v7x-192gb",
        "ascend-910b1-64gb",
        "ascend-910b2-64gb",
        "ascend-910b3-64gb",
        "ascend-910b4-32gb",
        "ascend-910c-128gb",
    }
    without_bandwidth = {slug for slug, gpu in BUNDLED.gpus.items() if gpu.memory_bandwidth_bytes_per_s is None}
    assert without_bandwidth == {"tpu-v7x-192gb", "ascend-910b4-32gb"}


@pytest.fixture
def one_gpu(tmp_path: Path) -> Path:
    for folder in ("gpus", "models", "prices", "engines", "steps"):
        (tmp_path / folder).mkdir()
    shutil.copy(PACKAGE / "steps" / "step_model.yaml", tmp_path / "steps")
    shutil.copy(PACKAGE / "gpus" / "t4-16gb.yaml", tmp_path / "gpus")
    shutil.copy(PACKAGE / "prices" / "t4-16gb-on-demand.yaml", tmp_path / "prices")
    return tmp_path


def test_the_digest_follows_the_files(one_gpu: Path) -> None:
    before = load_bundled(one_gpu)
    assert load_bundled(one_gpu).digest == before.digest
    with (one_gpu / "gpus" / "t4-16gb.yaml").open("a") as file:
        file.write("# seen again\n")
    assert load_bundled(one_gpu).digest != before.digest


@pytest.mark.parametrize(
    ("written", "replacement", "told"),
    [
        ("memory_bytes: 15826954486", "memory_bytes: many", r"gpus/t4-16gb\.yaml: memory_bytes: Input should be a valid integer"),
        ("memory_bytes: 15826954486", "memory_bytes: .nan", r"gpus/t4-16gb\.yaml: memory_bytes: "),
        ("vendor: NVIDIA", "maker: NVIDIA", r"gpus/t4-16gb\.yaml: maker: Extra inputs are not permitted"),
        ("  fp16: 65000000000000", "  fp16: -1", r"gpus/t4-16gb\.yaml: peak_flops_per_s\.fp16: Input should be greater than or equal to 1"),
        ("slug: t4-16gb", "slug: t4", r"gpus/t4-16gb\.yaml: slug: 't4' is not the name of the file"),
        ("vendor: NVIDIA", "vendor: [", r"gpus/t4-16gb\.yaml: not YAML"),
    ],
)
def test_a_fault_is_told_with_file_and_field(one_gpu: Path, written: str, replacement: str, told: str) -> None:
    file = one_gpu / "gpus" / "t4-16gb.yaml"
    text = file.read_text()
    assert written in text
    file.write_text(text.replace(written, replacement, 1))
    with pytest.raises(CatalogFileError, match=told):
        load_bundled(one_gpu)


def test_a_price_of_no_gpu_is_told(one_gpu: Path) -> None:
    (one_gpu / "gpus" / "t4-16gb.yaml").unlink()
    with pytest.raises(CatalogFileError, match=r"prices/t4-16gb-on-demand\.yaml: gpu: 't4-16gb' is not a file in gpus/"):
        load_bundled(one_gpu)


@pytest.mark.slow
def test_loading_is_quick_enough_for_a_start() -> None:
    started = time.process_time()
    load_bundled()
    assert time.process_time() - started < 2


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    for folder in ("gpus", "models", "prices", "engines", "steps"):
        shutil.copytree(PACKAGE / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def test_a_file_based_on_another_says_what_differs(copied: Path) -> None:
    base, own = BUNDLED.engines["vllm-0.33"], copied / "engines" / "vllm-0.33.yaml"
    own.write_text(own.read_text() + "band:\n  above_bytes: 7\n")
    found = load_bundled(copied).engines["vllm-0.33"]
    assert found.band == base.band.model_copy(update={"above_bytes": 7})
    assert found.model_copy(update={"band": base.band}) == base


@pytest.mark.parametrize("base", ["nothing", "vllm-0.33"], ids=["unknown", "itself"])
def test_a_base_that_is_no_other_file_is_told(copied: Path, base: str) -> None:
    own = copied / "engines" / "vllm-0.33.yaml"
    own.write_text(own.read_text().replace("based_on: vllm-0.29-0.32", f"based_on: {base}"))
    with pytest.raises(CatalogFileError, match=r"vllm-0\.33\.yaml: based_on: "):
        load_bundled(copied)
