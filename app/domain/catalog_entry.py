"""Catalog entries as they are stored: the value, whose it is, and which change of the catalog it stems from."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field, PositiveInt

from app.domain.hardware import Gpu
from app.domain.llm import Llm
from app.domain.value import Slug, Value

Origin = Literal["bundled", "own"]
AttentionKind = Literal["mha", "gqa", "mqa", "mla", "compressed", "sliding_window", "recurrent"]
OWN_ENTRY_SOURCE = "own entry"
"""Stands in `sources` of an own entry that names none."""


class StoredEntry(Value):
    """What every stored entry says beside its value."""

    slug: Slug
    """Name in the catalog."""
    origin: Origin
    """`bundled`: comes with the release and is read-only; `own`: added by the users of this installation."""
    version: int
    """Catalog revision that last changed the entry; the ETag."""
    created_at: datetime
    """When the entry was added here."""
    updated_at: datetime
    """When the entry was last changed here."""


class GpuEntry(StoredEntry):
    """A stored accelerator."""

    entry: Gpu
    """The accelerator."""


class ModelEntry(StoredEntry):
    """A stored LLM."""

    entry: Llm
    """The model."""


class GpuPage(Value):
    """One page of the list, by slug."""

    items: Sequence[GpuEntry]
    """The entries."""
    next_page_token: str | None
    """`page_token` of the next page, null at the end."""


class ModelPage(Value):
    """One page of the list, by slug."""

    items: Sequence[ModelEntry]
    """The entries."""
    next_page_token: str | None
    """`page_token` of the next page, null at the end."""


Word = Annotated[str, Field(min_length=1, max_length=200)]


class GpuFilter(Value):
    """Which accelerators a list holds; all that is given must be met."""

    q: Word | None = None
    """Part of the slug or the name, in any case."""
    vendor: Word | None = None
    """Maker, in any case."""
    architecture: Word | None = None
    """Chip generation, in any case."""
    origin: Origin | None = None
    """Whose entries."""
    min_memory_bytes: Annotated[int, Field(ge=0, le=10**15)] | None = None
    """Least memory; entries whose memory is not known are left out [bytes]."""


class ModelFilter(Value):
    """Which models a list holds; all that is given must be met."""

    q: Word | None = None
    """Part of the slug, a Hugging Face id or the family, in any case."""
    family: Word | None = None
    """Family, in any case."""
    attention: AttentionKind | None = None
    """A kind of attention that at least one layer has; `recurrent` is linear attention or a state space."""
    moe: bool | None = None
    """Mixture of experts or dense."""
    min_num_params: PositiveInt | None = Field(default=None, le=10**16)
    """Least number of parameters."""
    max_num_params: PositiveInt | None = Field(default=None, le=10**16)
    """Largest number of parameters."""
    origin: Origin | None = None
    """Whose entries."""
