"""Thresholds and objectives that a request and the saved profile it names put in place of the rules' own."""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.domain.diagnosis_profile import DiagnosisProfile
from app.domain.errors import UnknownName
from app.domain.evidence import OBJECTIVES
from app.domain.json_pointer import json_pointer
from app.domain.provenance import Note
from app.domain.rule import Rule
from app.domain.thresholds import Overrides
from app.domain.workload import Slo

PROFILE_THRESHOLD_UNKNOWN = "profile_threshold_unknown"
MAX_NAMED = 10


@dataclass(frozen=True)
class Targets:
    """What a diagnosis compares with, and what is to be said about where it comes from."""

    overrides: Overrides
    slo: Slo | None
    notes: Sequence[Note] = ()


def names_of(rules: Sequence[Rule]) -> frozenset[str]:
    """Every name that a threshold can be replaced by: `<rule>.<name>` and the default objectives."""
    return frozenset({*OBJECTIVES, *(f"{rule.id}.{comparison.name}" for rule in rules for comparison in rule.comparisons())})


def check_names(thresholds: Mapping[str, float], rules: Sequence[Rule]) -> None:
    """Raises UnknownName with the nearest names for a threshold that neither a rule nor a default objective has."""
    known = names_of(rules) if thresholds else frozenset()
    for name in thresholds:
        if name not in known:
            nearest = tuple(difflib.get_close_matches(name, known, n=5, cutoff=0.5))
            hint = f"; nearest: {', '.join(nearest)}" if nearest else ""
            raise UnknownName(
                f"no threshold is called {name!r}{hint}", nearest=nearest, field=json_pointer("thresholds", name), value=thresholds[name]
            )


def targets_of(profile: DiagnosisProfile | None, thresholds: Mapping[str, float], slo: Slo | None, rules: Sequence[Rule]) -> Targets:
    """The thresholds and the SLO of a request over those of its profile.

    A threshold of the profile that no rule has any more is left out and named: the profile was checked by the rules of another version.
    """
    if profile is None:
        return Targets(Overrides(thresholds), slo)
    known = names_of(rules)
    kept = {name: value for name, value in profile.thresholds.items() if name in known}
    under = [name for name in kept if name in thresholds]
    said = f"Diagnosis profile {profile.name!r}, version {profile.version}, gives {len(kept)} threshold{'' if len(kept) == 1 else 's'}"
    if under:
        said += f", of which the request replaces {len(under)}"
    if profile.slo is not None:
        said += "; its latency objectives apply" if slo is None else "; its latency objectives give way to those of the request"
    notes = [Note(code="profile_used", message=f"{said}.")]
    if gone := [name for name in profile.thresholds if name not in known]:
        named = ", ".join(gone[:MAX_NAMED]) + (f" and {len(gone) - MAX_NAMED} more" if len(gone) > MAX_NAMED else "")
        message = f"Profile {profile.name!r} replaces thresholds that no rule of this version has: {named}. They were not used."
        notes.append(Note(code=PROFILE_THRESHOLD_UNKNOWN, message=message))
    return Targets(Overrides(thresholds, kept), slo or profile.slo, tuple(notes))
