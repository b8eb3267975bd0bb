"""`inferplan accuracy ...`: read the records, score the planner, print or write the summary."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from app.accuracy.load_records import read_loads
from app.accuracy.memory import memory_accuracy
from app.accuracy.performance import speed_accuracy
from app.accuracy.performance_report import speed_report, speed_summary
from app.accuracy.records import read_records
from app.accuracy.report import markdown_report, markdown_summary, with_summary
from app.catalog.loader import parse_entry
from app.domain.step_constants import StepModel
from app.services.catalog import CatalogHolder

MEMORY_CASES = Path("tests/accuracy/memory_cases.jsonl")
SERVING_POINTS = Path("tests/accuracy/serving_points.jsonl")
THROUGHPUT_CASES = Path("tests/accuracy/throughput_cases.jsonl")
FIT_PART = Path("tests/accuracy/step_model.fitpart.yaml")

accuracy = typer.Typer(no_args_is_help=True, help="Compare the planner's answers with what was recorded.")


@accuracy.command("memory")
def memory_against_records(
    *,
    cases: Annotated[Path, typer.Option(help="Recorded start-ups, JSON Lines; readings are taken from the file beside it.")] = MEMORY_CASES,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of Markdown.")] = False,
    readme: Annotated[Path | None, typer.Option(help="Write the summary between the marks of this document; print nothing.")] = None,
) -> None:
    """Print how far the memory answers are from what engines printed at start-up; needs no database."""
    records = read_records(cases)
    found = memory_accuracy(CatalogHolder().current, records)
    if readme is not None:
        readme.write_text(with_summary(readme.read_text(encoding="utf-8"), markdown_summary(found)), encoding="utf-8")
        return
    sys.stdout.write(found.model_dump_json(indent=2) if as_json else markdown_report(found, records))


@accuracy.command("performance")
def speed_against_records(
    *,
    points: Annotated[Path, typer.Option(help="Measured closed loops, JSON Lines.")] = SERVING_POINTS,
    cases: Annotated[Path, typer.Option(help="Published measurements, JSON Lines.")] = THROUGHPUT_CASES,
    fit_part: Annotated[Path, typer.Option(help="Constants fitted without the series that are scored.")] = FIT_PART,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of Markdown.")] = False,
    readme: Annotated[Path | None, typer.Option(help="Write the summary between the marks of this document; print nothing.")] = None,
) -> None:
    """Print how far modelled times and rates are from what was measured; needs no database."""
    records, left_out = read_loads(points, cases)
    without_scored = parse_entry(fit_part.read_bytes(), StepModel, fit_part.name)
    found = speed_accuracy(CatalogHolder().current, records, left_out, without_scored=without_scored)
    if readme is not None:
        text = readme.read_text(encoding="utf-8")
        readme.write_text(with_summary(text, speed_summary(found), "performance"), encoding="utf-8")
        return
    sys.stdout.write(found.model_dump_json(indent=2) if as_json else speed_report(found))
