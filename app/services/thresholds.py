"""Names of thresholds, as requests and saved profiles give them."""

import difflib
from collections.abc import Mapping, Sequence

from app.domain.errors import UnknownName
from app.domain.evidence import OBJECTIVES
from app.domain.json_pointer import json_pointer
from app.domain.rule import Rule


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
