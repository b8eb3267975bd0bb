"""Stored JSON in the contract."""

from pydantic import GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from app.domain.provenance import Answer


class WrittenAs:
    """Describes stored JSON in the contract by the types that it was written from, without reading it by today's types."""

    def __init__(self, *types: type[Answer]) -> None:
        self.types = types

    def __get_pydantic_json_schema__(self, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Any of the types as it is now, or an object as an earlier version wrote it."""
        return {"anyOf": [*(handler(each.__pydantic_core_schema__) for each in self.types), handler(core_schema)]}
