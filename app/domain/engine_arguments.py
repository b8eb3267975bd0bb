"""The command that starts a replica as it was sized."""

from app.domain.provenance import Note
from app.domain.value import Value


class EngineArgument(Value):
    """One option of an engine's command line."""

    option: str
    """Its name, as `--max-num-seqs`."""
    value: str | None
    """Its value; None for a switch."""


class EngineArguments(Value):
    """How an engine is started so that it is the replica of the answer."""

    engine: str
    """The engine."""
    engine_version: str | None
    """The version that was asked for; None where none was."""
    arguments: list[EngineArgument]
    """The options in order."""
    command: str
    """The whole command for a shell."""
    notes: list[Note]
    """What the command does not say."""
