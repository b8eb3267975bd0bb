"""The command that scores the planner on recorded start-ups."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from app.accuracy.memory import memory_accuracy
from app.accuracy.records import read_records
from app.accuracy.report import markdown_report, markdown_summary, with_summary
from app.accuracy.sets import compared_sets, markdown_sets
from app.services.catalog import CatalogHolder

MEMORY_CASES = Path("tests/accuracy/memory_cases.jsonl")
FRESH_MEMORY_CASES = Path("tests/accuracy/memory_cases_fresh.jsonl")

accuracy = typer.Typer(no_args_is_help=True, help="Compare the planner's answers with what was recorded.")


@accuracy.command("memory")
def memory_against_records(
    *,
    cases: Annotated[Path | None, typer.Option(help="Only these recorded start-ups, JSON Lines; readings from the file beside it.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of Markdown.")] = False,
    readme: Annotated[Path | None, typer.Option(help="Write the summary between the marks of this document; print nothing.")] = None,
) -> None:
    """Print how far the memory answers are from what engines printed at start-up; needs no database."""
    catalog, records = CatalogHolder().current, read_records(cases or MEMORY_CASES)
    found = memory_accuracy(catalog, records)
    if as_json:
        sys.stdout.write(found.model_dump_json(indent=2))
        return
    fresh = read_records(FRESH_MEMORY_CASES) if cases is None else []
    sets = "\n" + markdown_sets(compared_sets(catalog, records, fresh)) if fresh else ""
    if readme is not None:
        readme.write_text(with_summary(readme.read_text(encoding="utf-8"), markdown_summary(found) + sets), encoding="utf-8")
        return
    sys.stdout.write(markdown_report(found, records) + sets)
