"""The configuration that every value of the domain shares, and what holds for values that callers send."""

import typing
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Slug = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]*$", max_length=100)]
"""Name in the catalog."""


class Value(BaseModel):
    """An immutable value: unknown fields, NaN and infinities are refused; attribute docstrings become field descriptions."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy with some fields changed; cached properties are computed again, since pydantic would copy those of the original."""
        copied = super().model_copy(update=update, deep=deep)
        for name in copied.__dict__.keys() - type(self).model_fields.keys():
            del copied.__dict__[name]
        return copied


class Given(Value):
    """A value that callers send: neither true nor "1" passes for the number 1, as both otherwise would."""

    _numeric: ClassVar[frozenset[str]] = frozenset()
    """Fields that hold numbers, alone or in lists, and neither texts nor booleans."""

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Remember once which fields are numeric."""
        super().__pydantic_init_subclass__(**kwargs)
        kinds = {name: set(_parts(field.annotation)) for name, field in cls.model_fields.items()}
        cls._numeric = frozenset(name for name, parts in kinds.items() if parts & {int, float} and not parts & {str, bool})

    @model_validator(mode="before")
    @classmethod
    def _numbers_only(cls, data: Any) -> Any:
        if isinstance(data, dict):
            wrong = [name for name, value in data.items() if type(value) in (bool, str, list) and name in cls._numeric]
            if wrong:
                return data | {name: _unparsable(data[name]) for name in wrong}
        return data


def _unparsable(value: Any) -> Any:
    """The value so that reading a number from it fails at its own place in the request."""
    if isinstance(value, list):
        return [_unparsable(each) for each in value]
    return repr(value) if type(value) in (bool, str) else value


def _parts(annotation: Any) -> Iterator[Any]:
    """The types that an annotation is made of."""
    yield annotation
    for part in typing.get_args(annotation):
        yield from _parts(part)
