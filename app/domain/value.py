"""The one configuration that every value of the domain shares."""

from pydantic import BaseModel, ConfigDict


class Value(BaseModel):
    """An immutable value: unknown fields, NaN and infinities are refused; attribute docstrings become field descriptions."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)
