"""`inferplan accuracy ...`: read the records, score the planner, print or write the summary."""

import json
import sys
from itertools import chain
from pathlib import Path
from typing import Annotated, get_args

import typer

from app.accuracy.calibration import Part, calibration_accuracy, calibration_summary
from app.accuracy.diagnosis import scored_sets
from app.accuracy.diagnosis_records import read_incidents
from app.accuracy.diagnosis_report import diagnosis_report, diagnosis_summary
from app.accuracy.fitted_model import with_fit
from app.accuracy.load_records import read_loads
from app.accuracy.memory import memory_accuracy
from app.accuracy.performance import speed_accuracy
from app.accuracy.performance_report import KnownMisses, speed_report, speed_summary
from app.accuracy.records import read_records
from app.accuracy.report import markdown_report, markdown_summary, with_summary
from app.accuracy.serving_recipes import read_recipes
from app.accuracy.sets import compared_sets, markdown_sets
from app.accuracy.step_bands import band_lines, bands_of
from app.accuracy.step_fit import fit_rows
from app.accuracy.step_folds import NOTHING, fit_folds, fold_text, read_folds
from app.accuracy.step_priors import StepFold, StepPriors
from app.catalog.loader import parse_entry
from app.rules.loader import load_rules
from app.services.catalog import CatalogHolder

MEMORY_CASES = Path("tests/accuracy/memory_cases.jsonl")
FRESH_MEMORY_CASES = Path("tests/accuracy/memory_cases_fresh.jsonl")
SERVING_POINTS = Path("tests/accuracy/serving_points.jsonl")
THROUGHPUT_CASES = Path("tests/accuracy/throughput_cases.jsonl")
SERVING_RECIPES = Path("tests/accuracy/serving_recipes.yaml")
STEP_FOLDS = Path("tests/accuracy/step_folds")
STEP_MODEL = Path("app/catalog/steps/step_model.yaml")
STEP_PRIORS = Path("tests/accuracy/step_priors.yaml")
DIAGNOSIS_SETS = {
    "recorded": Path("tests/accuracy/diagnosis_cases.jsonl"),
    **{name: Path(f"tests/accuracy/diagnosis_cases_{name}.jsonl") for name in ("fresh", "blind", "later", "further", "apart")},
}
"""Incidents by when they were collected. All but `apart` have been looked at by whoever wrote rules."""
KNOWN_MISSES = Path("tests/accuracy/known_misses.yaml")

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


@accuracy.command("performance")
def speed_against_records(
    *,
    points: Annotated[Path, typer.Option(help="Measured closed loops, JSON Lines.")] = SERVING_POINTS,
    cases: Annotated[Path, typer.Option(help="Published measurements, JSON Lines.")] = THROUGHPUT_CASES,
    recipes: Annotated[Path, typer.Option(help="Settings with which series of closed loops were run.")] = SERVING_RECIPES,
    folds: Annotated[Path, typer.Option(help="Folder of constants, each fitted without some of the rows.")] = STEP_FOLDS,
    priors: Annotated[Path, typer.Option(help="What the constants are expected to be before any fit.")] = STEP_PRIORS,
    misses: Annotated[Path, typer.Option(help="Mechanisms of series that the model is known to miss.")] = KNOWN_MISSES,
    bands: Annotated[
        bool, typer.Option("--bands", help="Print the ranges that these rows ask for, as the file of constants has them.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of Markdown.")] = False,
    readme: Annotated[Path | None, typer.Option(help="Write the summary between the marks of this document; print nothing.")] = None,
) -> None:
    """Print how far modelled times and rates are from what was measured; needs no database."""
    records, left_out = read_loads(points, cases, recipes=read_recipes(recipes))
    catalog = CatalogHolder().current
    found = speed_accuracy(
        catalog,
        records,
        left_out,
        folds=read_folds(folds, catalog.step_model),
        unfitted=parse_entry(priors.read_bytes(), StepPriors, priors.name).applied_to(catalog.step_model),
    )
    if readme is not None:
        text = readme.read_text(encoding="utf-8")
        readme.write_text(with_summary(text, speed_summary(found), "performance"), encoding="utf-8")
        return
    if bands:
        sys.stdout.writelines(f"{line}\n" for line in band_lines(bands_of(found.comparisons)))
        return
    known = parse_entry(misses.read_bytes(), KnownMisses, misses.name).misses
    sys.stdout.write(found.model_dump_json(indent=2) if as_json else speed_report(found, known))


@accuracy.command("calibration")
def calibrated_against_records(
    *,
    points: Annotated[Path, typer.Option(help="Measured closed loops, JSON Lines.")] = SERVING_POINTS,
    recipes: Annotated[Path, typer.Option(help="Settings with which series of closed loops were run.")] = SERVING_RECIPES,
    folds: Annotated[Path, typer.Option(help="Folder of constants, each fitted without some of the rows.")] = STEP_FOLDS,
    readme: Annotated[Path | None, typer.Option(help="Write the summary between the marks of this document; print nothing.")] = None,
) -> None:
    """Print how far estimates are from the rest of a sweep after calibrating on a part of it; needs no database, takes a minute."""
    records, _ = read_loads(points, recipes=read_recipes(recipes))
    catalog = CatalogHolder().current
    models = read_folds(folds, catalog.step_model)
    parts: tuple[Part, ...] = get_args(Part)
    summary = calibration_summary({part: calibration_accuracy(catalog, records, folds=models, part=part) for part in parts})
    if readme is not None:
        readme.write_text(with_summary(readme.read_text(encoding="utf-8"), summary, "calibration"), encoding="utf-8")
        return
    sys.stdout.write(summary)


@accuracy.command("diagnosis")
def causes_against_records(
    *,
    cases: Annotated[Path | None, typer.Option(help="Only these incidents, JSON Lines; readings from the file beside it.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of Markdown.")] = False,
    readme: Annotated[Path | None, typer.Option(help="Write the summary between the marks of this document; print nothing.")] = None,
) -> None:
    """Print how the findings compare with the confirmed causes of recorded incidents; needs no database."""
    catalog, rules = CatalogHolder().current, load_rules()
    files = DIAGNOSIS_SETS if cases is None else {"recorded": cases}
    reads = {name: read_incidents(file) for name, file in files.items()}
    sets = scored_sets(catalog, rules, reads)
    if as_json:
        sys.stdout.write(json.dumps({name: scored.model_dump(mode="json") for name, scored in sets.items()}, indent=2))
        return
    if readme is not None:
        text = readme.read_text(encoding="utf-8")
        readme.write_text(with_summary(text, diagnosis_summary(sets), "diagnosis"), encoding="utf-8")
        return
    sys.stdout.write(diagnosis_report(sets, list(chain.from_iterable(reads.values()))))


@accuracy.command("fit-steps")
def fit_steps(
    *,
    points: Annotated[Path, typer.Option(help="Measured closed loops, JSON Lines.")] = SERVING_POINTS,
    cases: Annotated[Path, typer.Option(help="Published measurements, JSON Lines.")] = THROUGHPUT_CASES,
    recipes: Annotated[Path, typer.Option(help="Settings with which series of closed loops were run.")] = SERVING_RECIPES,
    priors: Annotated[Path, typer.Option(help="What the constants are expected to be.")] = STEP_PRIORS,
    fold: Annotated[list[str] | None, typer.Option(help="Family of models or part to leave out; every one unless named.")] = None,
    folds: Annotated[Path, typer.Option(help="Folder that the constants are written to, a file for each fold.")] = STEP_FOLDS,
    model: Annotated[Path, typer.Option(help="File of the catalog that the constants of all rows are written to.")] = STEP_MODEL,
) -> None:
    """Fit the constants of a step without each fold of the records in turn: a family of models, or a part of the published figures.

    Unless single folds are named, those of the catalog are fitted to all rows as well.
    """
    catalog = CatalogHolder().current
    expected = parse_entry(priors.read_bytes(), StepPriors, priors.name)
    rows = fit_rows(catalog, read_loads(points, cases, recipes=read_recipes(recipes))[0])
    fits: dict[str, StepFold] = {}
    for found in fit_folds(rows, expected, catalog.step_model, fold or ()):
        fits[found.leaves_out] = found
        if found.leaves_out != NOTHING:
            file = folds / f"{found.leaves_out}.yaml"
            file.write_text(fold_text(found), encoding="utf-8")
            sys.stdout.write(f"{file}\n")
    if whole := fits.pop(NOTHING, None):
        text = with_fit(model.read_text(encoding="utf-8"), catalog.step_model, whole, fits.values(), rows)
        model.write_text(text, encoding="utf-8")
        sys.stdout.write(f"{model}\n")
