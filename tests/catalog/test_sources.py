"""No number without a source: walks every bundled entry and asks of each number where it comes from."""

import re
from collections.abc import Iterator
from datetime import date

import pytest

from app.catalog.loader import load_bundled
from app.domain.catalog import GpuPrice
from app.domain.hardware import Gpu
from app.domain.llm import Llm
from app.domain.value import Value

BUNDLED = load_bundled()
ENTRIES: dict[str, Gpu | Llm | GpuPrice] = {
    **{f"gpus/{slug}": gpu for slug, gpu in BUNDLED.gpus.items()},
    **{f"models/{slug}": model for slug, model in BUNDLED.models.items()},
    **{f"prices/{slug}": price for slug, price in BUNDLED.prices.items()},
}

# Figures that are known in another way than the rest of their entry, and the field that says how.
OWN_BASIS = {
    "memory_bytes": ("memory_basis", "source"),
    "memory_basis.driver_total_bytes": ("memory_basis", "source"),
    "memory_basis.runtime_total_bytes": ("memory_basis", "source"),
    "native.weights_bytes": ("native", "weights_basis"),
    "stated_kv_cache.bytes_per_token": ("stated_kv_cache", "note"),
}
# A source can be looked up (address, package and version, document number), or says that it is arithmetic, inference or a price list.
TRACEABLE = re.compile(
    r"https?://\S+|\w\S* [\d.]+(\w+)? \(Python package|\(Python package\)|^arithmetic: |^shape inferred; "
    r"|\b(data sheet|white paper|price list|price page|articles|page|community values|MLPerf Inference)\b"
)
# Where nothing but a log of a machine shows the figure, the log's kind is named.
SEEN = re.compile(r"https?://\S+|\b(public logs|nvidia-smi|aiconfigurator \w+\.yaml|assumed equal to|as the \S+ Edition)\b")


def numbers(value: object, path: str = "") -> Iterator[tuple[str, int | float]]:
    """(dotted path, number) of every number of an entry that is not a default of its type."""
    if isinstance(value, bool):
        return
    if isinstance(value, int | float):
        yield path, value
    elif isinstance(value, Value):
        for name in value.model_fields_set:
            yield from numbers(getattr(value, name), f"{path}.{name}" if path else name)
    elif isinstance(value, tuple):
        for position, item in enumerate(value):
            yield from numbers(item, f"{path}[{position}]")


def source_of(entry: Gpu | Llm | GpuPrice, path: str) -> str | None:
    """What the entry says about the origin of one of its numbers, None when it says nothing."""
    if path in OWN_BASIS:
        part, name = OWN_BASIS[path]
        said = getattr(getattr(entry, part), name)
        return said if isinstance(said, str) else None
    return "; ".join(entry.sources) or None


@pytest.mark.parametrize("name", sorted(ENTRIES))
def test_every_number_has_a_source(name: str) -> None:
    entry = ENTRIES[name]
    found = dict(numbers(entry))
    assert found
    assert {path: source_of(entry, path) for path in found if not source_of(entry, path)} == {}
    assert entry.checked_on is not None
    assert entry.checked_on <= date.today()  # noqa: DTZ011 - a day, not a moment


def test_the_walk_reaches_the_depth_of_an_entry() -> None:
    paths = dict(numbers(BUNDLED.models["deepseek-v3"]))
    assert paths["layer_groups[1].feed_forward[0].num_experts"] == 256
    assert dict(numbers(BUNDLED.gpus["h100-sxm-80gb"]))["peak_flops_per_s.bf16"] == 989.4e12


def test_a_number_whose_source_is_missing_is_found() -> None:
    gpu = BUNDLED.gpus["h100-sxm-80gb"]
    assert gpu.memory_basis is not None
    bare = gpu.model_copy(update={"sources": (), "memory_basis": gpu.memory_basis.model_copy(update={"source": None})})
    assert source_of(bare, "tdp_watts") is None
    assert source_of(bare, "memory_bytes") is None


@pytest.mark.parametrize("name", sorted(ENTRIES))
def test_sources_can_be_traced(name: str) -> None:
    untraceable = [source for source in ENTRIES[name].sources if not TRACEABLE.search(source)]
    assert untraceable == []


@pytest.mark.parametrize("slug", sorted(slug for slug, gpu in BUNDLED.gpus.items() if gpu.memory_bytes is not None))
def test_gpu_memory_says_where_it_was_seen(slug: str) -> None:
    basis = BUNDLED.gpus[slug].memory_basis
    assert basis is not None
    assert basis.source is not None
    assert SEEN.search(basis.source)


@pytest.mark.parametrize("slug", sorted(BUNDLED.gpus))
def test_gpu_memory_is_what_the_runtime_or_the_tool_reports(slug: str) -> None:
    """memory = runtime total x 2^30, else nvidia-smi's MiB x 2^20, else the documented GiB; printed figures carry two decimals."""
    gpu = BUNDLED.gpus[slug]
    basis = gpu.memory_basis
    assert basis is not None
    if gpu.memory_bytes is None:
        assert basis.runtime_total_bytes is None
        assert basis.driver_total_bytes is None
    elif basis.runtime_total_bytes:
        devices = 2 if slug == "mi250x-128gb" else 1  # the card is two devices
        assert gpu.memory_bytes == pytest.approx(devices * basis.runtime_total_bytes, abs=2**20)
    elif basis.driver_total_bytes and "torch value" in basis.basis:
        assert gpu.memory_bytes == BUNDLED.gpus["h100-sxm-80gb"].memory_bytes
    elif basis.driver_total_bytes:
        assert gpu.memory_bytes == pytest.approx(basis.driver_total_bytes, abs=0.005 * 2**30)
    else:
        assert "documented" in basis.basis
        assert gpu.memory_bytes % 2**30 == 0


@pytest.mark.parametrize("slug", sorted(BUNDLED.models))
def test_native_element_type_says_where_it_was_read(slug: str) -> None:
    native = BUNDLED.models[slug].native
    assert (native.dtype is None) == (native.dtype_source is None)
    assert (native.weights_bytes is None) == (native.weights_basis is None)


@pytest.mark.parametrize("slug", sorted(BUNDLED.prices))
def test_prices_are_ranges_with_a_day(slug: str) -> None:
    price = BUNDLED.prices[slug]
    assert slug == f"{price.gpu}-{price.kind.replace('_', '-')}"
    on_demand = BUNDLED.prices[f"{price.gpu}-on-demand"]
    assert price.low_usd_per_hour <= on_demand.high_usd_per_hour
    assert 0 < price.low_usd_per_hour <= price.high_usd_per_hour
    assert re.fullmatch(r"20\d\d-\d\d(-\d\d)?", price.priced_on)
