"""All claims of the papers, and the recipes that they are about."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from wayfare.core.errors import unknown
from wayfare.papers import files
from wayfare.papers.claims import Claim, Sheet, check, read_claims
from wayfare.papers.paper import Cell, Paper
from wayfare.papers.plan import read_cells

STUDY = "fedtour/study"  # a recipe without cells: `papers.study` trains many models and merges every two
_STUDY_SHEET = Sheet(
    Paper(title="FedTour, Sect. IV", metric="study/improving", unit="%", runs="fedtour"),
    {"study": Cell(paper=100 * 37315 / 53361, also={"study/mape": math.nan})},
)


@dataclass(frozen=True)
class ClaimCatalogue:
    """Claims that were checked against their recipes."""

    claims: tuple[Claim, ...]
    sheets: Mapping[str, Sheet]  # recipe -> its cells, and those of the recipes that share its runs
    homes: Mapping[str, Mapping[str, str]]  # recipe -> cell -> the recipe that has it

    @classmethod
    def read(cls, paper: str = "") -> ClaimCatalogue:
        """The claims of one paper ("fedvpr"), or of all."""
        of_papers = files.claim_files()
        if paper and paper not in of_papers:
            raise unknown("paper", paper, of_papers, "--paper")
        of_papers = {paper: of_papers[paper]} if paper else of_papers
        known = {name: path for name, path in files.recipes().items() if name.partition("/")[0] in of_papers}
        found = {name: cells for name, path in known.items() if (cells := read_cells(path)) is not None}
        sheets: dict[str, Sheet] = {STUDY: _STUDY_SHEET}
        homes: dict[str, dict[str, str]] = {STUDY: {"study": STUDY}}
        for name, (table, own) in found.items():
            every, home = dict(own), dict.fromkeys(own, name)
            for other, (its, further) in found.items():
                if its.runs == table.runs and its.runs:
                    every = dict(further) | every
                    home = dict.fromkeys(further, other) | home
            sheets[name], homes[name] = Sheet(table, every), home
        claims = read_claims(of_papers.values())
        check(claims, sheets)
        return cls(claims, sheets, homes)

    def choose(self, only: str) -> tuple[Claim, ...]:
        """Those with these names or patterns, comma-separated, of claims or recipes; by default all."""
        chosen = [name.strip() for name in only.split(",") if name.strip()]
        for name in chosen:
            if not any(_fits(claim, name) for claim in self.claims):
                raise unknown("claim", name, [claim.id for claim in self.claims], "--only")
        return tuple(claim for claim in self.claims if not chosen or any(_fits(claim, name) for name in chosen))

    def unit(self, claim: Claim) -> str:
        """Of the claim's effect."""
        return self.sheets[claim.recipe].unit(claim) if claim.recipe else ""


def title_of(publication: str) -> str:
    """A paper's title, by its short name."""
    file = files.claim_files()[publication]
    return str(tomllib.loads(file.read_text(encoding="utf-8")).get("title", file.stem))


def _fits(claim: Claim, name: str) -> bool:
    return any(fnmatchcase(known, name) for known in (claim.id, claim.id.partition("/")[2], claim.recipe))
