"""Models from Hugging Face configurations: read, and stored as own entries when asked to."""

from typing import Annotated, Any

from pydantic import Field
from sqlalchemy.orm import Session

from app.domain.catalog_entry import ModelEntry
from app.domain.llm import Llm
from app.domain.value import Slug, Value
from app.importers.hf_config import llm_from_hf_config
from app.services import catalog_entries


class ModelImport(Value):
    """A model to read from its published configuration."""

    config: dict[str, Any]
    """The content of config.json. Fields whose effect on size is not known are refused by name."""
    safetensors_index: dict[str, Any] | None = None
    """The content of model.safetensors.index.json; its `metadata` is enough. Gives the exact size of the checkpoint."""
    slug: Slug
    """Name of the new entry."""
    hf_id: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    """Hugging Face repository id, another name that the entry is found by."""
    save: bool = True
    """Store the model as an own entry; with false it is only read and returned."""


def read_model(asked: ModelImport) -> Llm:
    """The model that the configuration describes; raises UnsupportedConfig and InvalidInput with the field."""
    return llm_from_hf_config(
        asked.config, slug=asked.slug, hf_id=asked.hf_id, safetensors_index=asked.safetensors_index, pointer="/config"
    )


def import_model(session: Session, asked: ModelImport) -> ModelEntry:
    """Read the model and add it as an own entry; raises AlreadyExists when one of its names is taken."""
    return catalog_entries.create_model(session, read_model(asked))
