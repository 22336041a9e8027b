"""Claims of the papers as data: one TOML file per paper, a table [claims.NAME] for each of its claims.

    title = "..."                    of the paper
    [claims.NAME]
    claim = "GeM is better than MAC" in our words
    source = "Tab. 2"                where the paper says so
    recipe = "table2"                of the folder recipes/PAPER, whose cells are compared
    metric = "test/R@1"              by default the recipe's own
    statistic = "difference"         see `wayfare.papers.verdicts`
    above = ["gem"], below = ["mac"] cells; for a slope: along = [...], in order
    direction = "greater"            than `margin` (0 by default), "less", or "equal" within it
    over.bits = [16, 32]             "fedavg-{bits}" in a list of cells stands for all of them
    untested = "..."                 why it cannot be tested here

Each entry of a list of cells is a number of every seed: the cell's metric; "a - b", its difference between two cells;
or "a at 25%", the metric after a quarter of the rounds. What the paper has is in the cells of the recipe, so that its
effect is computed as ours is; `paper` gives it where only the text does.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any, Literal

from wayfare.components import build
from wayfare.core.errors import ConfigError, unknown
from wayfare.papers.paper import REACHED, Cell, Paper
from wayfare.papers.reproduction import MEASURES

SECONDS_PER_ROUND = "seconds_per_round"
# what a run folder tells beside its metrics, and in which unit
UNITS: Mapping[str, str] = {
    SECONDS_PER_ROUND: "s",
    "rounds_to": "rounds",
    "megabytes_to": "MB",
    "seconds_to": "s",
    "best_percent": "%",
    "hours": "h",
    **{name: name for name in MEASURES if name not in ("best_percent", "hours")},
}


@dataclass(frozen=True)
class Term:
    """A cell's number, counted positively or negatively; at the end of the run, or after this share of its rounds."""

    cell: str
    sign: int = 1
    share: float = 1.0


@dataclass(frozen=True)
class Claim:
    """One sentence of a paper that runs can bear out or not."""

    id: str
    claim: str
    source: str
    recipe: str = ""
    metric: str = ""
    statistic: Literal["difference", "every", "share", "slope"] = "difference"
    above: tuple[str, ...] = ()
    below: tuple[str, ...] = ()
    along: tuple[str, ...] = ()
    at: tuple[float, ...] = ()  # of a slope: where on the axis each of `along` is; by default 0, 1, 2, ...
    direction: Literal["greater", "less", "equal"] = "greater"
    margin: float = 0.0
    over: Mapping[str, tuple[str | int, ...]] = field(default_factory=dict)
    paper: float | None = None  # the paper's effect, where it is not in the recipe's cells
    paper_disagrees: str = ""  # the paper's numbers do not bear out its text: how
    note: str = ""
    paper_scale_only: str = ""  # why runs at small scale say nothing about it
    untested: str = ""

    @property
    def publication(self) -> str:
        """The paper's short name."""
        return self.id.partition("/")[0]

    @cached_property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """What is above and what is below, one by one; "" where a value stands for itself."""
        above, below = self.above, self.below or ("",)
        if len(above) == 1:
            above *= len(below)
        if len(below) == 1:
            below *= len(above)
        if len(above) != len(below):
            raise ConfigError(f"claim {self.id}: {len(above)} cells above and {len(below)} below cannot be paired")
        return tuple(zip(above, below))

    @cached_property
    def cells(self) -> tuple[str, ...]:
        """Every cell that the claim is about, once."""
        items = (*self.above, *self.below, *self.along)
        return tuple(dict.fromkeys(term.cell for item in items for term in terms(item)))

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        hidden = ("at", "over", "paper")
        return {each.name: getattr(self, each.name) for each in fields(self) if each.name not in hidden}


@dataclass(frozen=True)
class Sheet:
    """A recipe as claims see it: its table in the paper, and the cells with the paper's values."""

    paper: Paper
    cells: Mapping[str, Cell]

    def metric(self, claim: Claim) -> str:
        return claim.metric or self.paper.metric

    def unit(self, claim: Claim) -> str:
        """Of the effect."""
        if claim.statistic == "share":
            return ""
        metric = self.metric(claim)
        return UNITS.get(metric, "points" if self.paper.unit == "%" else "")

    def published(self, claim: Claim, term: Term) -> float | None:
        """What the paper has for a cell."""
        cell, metric = self.cells[term.cell], self.metric(claim)
        fact = cell.paper if metric == self.paper.metric else cell.also.get(metric)
        value = fact[0] if isinstance(fact, tuple) else fact
        return None if value is None or math.isnan(value) or term.share < 1 else value


def terms(item: str) -> tuple[Term, ...]:
    """An entry of a list of cells: "a", "a - b", "a at 25%"; nothing for ""."""
    found = []
    for place, part in enumerate(item.split(" - ") if item else ()):
        cell, _, share = part.strip().partition(" at ")
        try:
            found.append(Term(cell, -1 if place else 1, float(share.removesuffix("%")) / 100 if share else 1.0))
        except ValueError:
            raise ConfigError(f"{item!r}: only a share such as ' at 25%' may follow a cell's name") from None
    return tuple(found)


def read_claims(files: Iterable[Path]) -> tuple[Claim, ...]:
    """Every claim of these files, in their order."""
    return tuple(claim for file in files for claim in _read(file))


def _read(file: Path) -> list[Claim]:
    try:
        table = tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise ConfigError(f"{file}: not a readable file of claims: {error}") from error
    for key in table:
        if key not in ("title", "claims"):
            raise unknown("key", key, ("title", "claims"), str(file))
    return [_claim(file, name, settings) for name, settings in table.get("claims", {}).items()]


def _claim(file: Path, name: str, settings: dict[str, Any]) -> Claim:
    where = f"{file}: claims.{name}"
    over = {key: tuple(values) for key, values in settings.get("over", {}).items()}
    named = f"{file.stem}/{settings['recipe']}" if settings.get("recipe") else ""
    settings = settings | {"id": f"{file.stem}/{name}", "recipe": named, "over": over}
    claim: Claim = build(Claim, settings, where)
    above, below, along = (_spread_out(items, over, where) for items in (claim.above, claim.below, claim.along))
    claim = replace(claim, above=above, below=below, along=along)
    if not claim.untested:
        _check_shape(claim, where)
    return claim


def _spread_out(items: tuple[str, ...], over: Mapping[str, tuple[str | int, ...]], where: str) -> tuple[str, ...]:
    """Each entry for every combination of what the names in braces stand for."""
    try:
        made = [item.format(**dict(zip(over, values))) for values in product(*over.values()) for item in items]
    except (KeyError, IndexError, ValueError) as error:
        raise ConfigError(
            f"{where}: {error} in braces is not in `over`, which has {', '.join(over) or 'nothing'}"
        ) from None
    return tuple(dict.fromkeys(made)) if len(set(made)) == 1 else tuple(made)


def _check_shape(claim: Claim, where: str) -> None:
    if not claim.recipe:
        raise ConfigError(f"{where}: give a recipe, or the reason why there is none as untested")
    if claim.statistic == "slope":
        if claim.above or claim.below or len(claim.along) < 2 or len(claim.at) not in (0, len(claim.along)):
            raise ConfigError(
                f"{where}: a slope needs at least two cells in `along`, and `at` is empty or has a number for each"
            )
    elif claim.along or claim.at or not claim.above:
        raise ConfigError(f"{where}: statistic {claim.statistic!r} compares `above` with `below`; `along` is a slope's")
    elif claim.statistic != "difference":
        claim.pairs  # noqa: B018  refuses lists that do not match
    if claim.direction == "equal" and claim.margin <= 0:
        raise ConfigError(f'{where}: direction = "equal" needs margin, how far apart counts as equal')


def check(claims: Iterable[Claim], sheets: Mapping[str, Sheet]) -> None:
    """Refuse claims about recipes, cells or metrics that are not there."""
    for claim in claims:
        where = f"claim {claim.id}"
        if claim.recipe and claim.recipe not in sheets:
            raise unknown("recipe", claim.recipe, sheets, where)
        if claim.untested:
            continue
        sheet = sheets[claim.recipe]
        for cell in claim.cells:
            if cell not in sheet.cells:
                raise unknown("cell", cell, sheet.cells, f"{where}, recipe {claim.recipe}")
        known = {sheet.paper.metric, *UNITS, *(name for cell in sheet.cells.values() for name in cell.also)}
        if sheet.metric(claim) not in known:
            raise unknown("metric", claim.metric, known, f"{where}, recipe {claim.recipe}")
        if sheet.metric(claim) in REACHED and not sheet.paper.reach:
            raise ConfigError(f"{where}: {sheet.metric(claim)} needs paper.reach in recipe {claim.recipe}")
