"""Testing claims: the runs that they need, and a verdict on each.

    from wayfare.papers.catalogue import ClaimCatalogue
    from wayfare.papers.claim_runs import ClaimRuns

    catalogue = ClaimCatalogue.read("psg")
    runs = ClaimRuns(catalogue, catalogue.choose("psg/table1"))
    runs.run(seeds=20)
    for verdict in runs.verdicts():
        print(verdict.claim.claim, verdict.word)

Runs are in the folders where `papers.reproduce` has them; those that are finished are used as they are.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from wayfare.core import manifest
from wayfare.core.errors import ConfigError, DataError, WayfareError
from wayfare.core.protocols import Engine
from wayfare.encounters.predictors.regressor import fit
from wayfare.engines import open_engine
from wayfare.experiment import Experiment
from wayfare.io.tables import read_json
from wayfare.pages.record import Record
from wayfare.papers import files
from wayfare.papers.catalogue import STUDY, ClaimCatalogue, title_of
from wayfare.papers.claims import Claim
from wayfare.papers.claims_results import Setting
from wayfare.papers.paper import Scale
from wayfare.papers.plan import Plan, default_scale, missing_weights, read_experiment, read_plan
from wayfare.papers.sequential import CAP, looks
from wayfare.papers.study import conduct, summarise
from wayfare.papers.verdicts import Verdict, decide
from wayfare.runner import Listener, run_all, silent

_NO_DATA, _FAILED = (
    "not run: its data is not available",
    "not run: it failed",
)  # without the error's own words, which name folders


@dataclass
class ClaimRuns:
    """The runs that claims need. Their names below `root` are those that `papers.reproduce` uses."""

    catalogue: ClaimCatalogue
    claims: Sequence[Claim]
    root: Path = Path("runs")
    chosen_scale: Scale | None = None  # None: small without data, the paper's with it
    data: Path | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)  # dotted keys, as of --set
    absent: dict[str, dict[str, str]] = field(default_factory=dict)  # recipe -> cell -> why it has no runs
    used: dict[Path, Record] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.data is not None and not self.data.exists():
            raise ConfigError(f"--data {self.data}: there is no such file or folder")
        sets = dict.fromkeys(self.catalogue.sheets[claim.recipe].paper.data for claim in self.tested)
        if self.data is not None and len(sets) > 1:
            named = ", ".join(repr(name) if name else "CIFAR-10" for name in sets)
            raise ConfigError(
                f"--data is one data set, and the chosen claims are about {named}: choose with --paper and --only"
            )

    @property
    def scale(self) -> str:
        return (self.chosen_scale or default_scale(self.data)).value

    @property
    def data_words(self) -> str:
        """Without the whole path, which would tell where this machine keeps its files."""
        name = "what comes with the recipes" if self.data is None else self.data.resolve().name
        return ", ".join([name, *(f"{key} = {value}" for key, value in self.changes.items())])

    @property
    def tested(self) -> list[Claim]:
        """Those that runs of this scale can decide."""
        return [c for c in self.claims if not c.untested and (self.scale == Scale.paper or not c.paper_scale_only)]

    @cached_property
    def needed(self) -> dict[str, list[str]]:
        """What all tested claims need."""
        return self._needed(self.tested)

    def _needed(self, claims: Iterable[Claim]) -> dict[str, list[str]]:
        """Recipe -> cells, each once."""
        found: dict[str, dict[str, None]] = {}
        for claim in claims:
            for cell in claim.cells:
                found.setdefault(self.catalogue.homes[claim.recipe][cell], {})[cell] = None
        return {recipe: list(cells) for recipe, cells in found.items()}

    @cached_property
    def plans(self) -> dict[str, Plan]:
        """Recipes as experiments, except the study."""
        known = files.recipes()
        return {
            recipe: read_plan(known[recipe], Scale(self.scale), self.data, self.changes, cells)
            for recipe, cells in self.needed.items()
            if recipe != STUDY
        }

    def folder(self, plan: Plan) -> Path:
        """As `papers.reproduce` has it, below another root."""
        return self.root / plan.folder.relative_to("runs")

    # ---- running

    def run(
        self,
        seeds: int = CAP,
        engine: str | Engine = "auto",
        workers: int = 0,
        track: Sequence[str] = (),
        listen: Listener = silent,
    ) -> None:
        """Run what is missing, look after look: only what open claims need, with at most so many seeds."""
        undecided = list(self.tested)
        with open_engine(engine, workers) as machine:
            for look in looks(seeds):
                named = f"{len(undecided)} claims are open: up to {look} seeds each"
                listen("preparing", {"text": named, "done": 0, "total": 0})
                self._run(self._needed(undecided), look, machine, track, listen)
                undecided = [verdict.claim for verdict in self.verdicts(undecided) if verdict.can_continue]
                if not undecided:
                    break

    def _run(
        self, needed: Mapping[str, Sequence[str]], seeds: int, machine: Engine, track: Sequence[str], listen: Listener
    ) -> None:
        """So many seeds of these cells."""
        batches: dict[Path, dict[str, Experiment]] = {}
        homes: dict[Path, dict[str, str]] = {}  # folder -> cell -> recipe
        for recipe, cells in needed.items():
            if recipe == STUDY:
                self._study(seeds, machine, listen)
                continue
            plan = self.plans[recipe]
            for cell in cells:
                if weights := missing_weights(plan.experiments[cell]):
                    self.absent.setdefault(recipe, {})[cell] = f"its weights, {weights}, are not available"
                    continue
                batches.setdefault(self.folder(plan), {}).update(plan.runs_of(cell, seeds))
                homes.setdefault(self.folder(plan), {})[cell] = recipe
        for folder, batch in batches.items():
            failed = partial(self._failed, homes[folder], listen)
            run_all(batch, folder, machine, track=track, listen=listen, failed=failed)

    def _failed(self, homes: Mapping[str, str], listen: Listener, run: str, error: WayfareError) -> None:
        """A setting may not fit every cell, and one paper's data may be missing where another's is there."""
        cell = run.partition("/")[0]
        listen("warning", {"text": f"not run: {homes[cell]}, {run}: {error}"})
        self.absent.setdefault(homes[cell], {})[cell] = _NO_DATA if isinstance(error, DataError) else _FAILED

    # ---- FedTour's study of merges, once per seed; it has no run folder, so its numbers are kept here

    def _study(self, seeds: int, engine: Engine, listen: Listener) -> None:
        first = self._study_experiment.seed
        for seed in range(first, first + seeds):
            file = self._study_file(seed)
            if file.is_file():
                continue
            listen("preparing", {"text": f"study of merges, seed {seed}", "done": 0, "total": 0})
            began, experiment = datetime.now(UTC), self._study_experiment.with_seed(seed)
            try:
                found = conduct(experiment, engine=engine)
            except DataError as error:
                listen("warning", {"text": f"not run: {STUDY}: {error}"})
                self.absent[STUDY] = {"study": _NO_DATA}
                return
            summary = summarise(found, fit(found, seed)[1])
            metrics = {f"study/{name}": summary[name] for name in ("improving", "mape")}
            file.parent.mkdir(parents=True, exist_ok=True)
            seconds = (datetime.now(UTC) - began).total_seconds()
            content = {"seed": seed, "seconds": seconds, "metrics": metrics, "experiment": experiment.to_toml()}
            file.write_text(json.dumps(content), encoding="utf-8")

    @cached_property
    def _study_experiment(self) -> Experiment:
        return read_experiment(files.recipes()[STUDY], self.changes, self.data)

    def _study_file(self, seed: int | str) -> Path:
        return self.root / "fedtour" / self.scale / "study" / f"seed-{seed}.json"

    # ---- what the runs say

    def records(self, recipe: str, cell: str) -> dict[int, Record]:
        """The finished runs of a cell by seed; those with other settings than the recipe's are refused."""
        if recipe == STUDY:
            return self._study_records()
        plan, found = self.plans[recipe], {}
        for path in sorted((self.folder(plan) / cell).glob("seed-*")):
            if not (path / "summary.json").is_file():
                continue
            if path not in self.used:
                record = Record.read(path)
                expected = plan.experiments[cell].with_seed(int(record.experiment["seed"]))
                if not expected.is_in(record.recipe):
                    raise ConfigError(f"{path} holds a run with other settings: remove it, or choose another --out")
                self.used[path] = record
            found[int(self.used[path].experiment["seed"])] = self.used[path]
        return found

    def _study_records(self) -> dict[int, Record]:
        found = {}
        pattern = self._study_file("*")
        for path in sorted(pattern.parent.glob(pattern.name)):
            content = json.loads(path.read_text(encoding="utf-8"))
            if not self._study_experiment.with_seed(content["seed"]).is_in(content["experiment"]):
                raise ConfigError(f"{path} holds a study with other settings: remove it, or choose another --out")
            record = Record(path, {"seed": content["seed"]}, content["experiment"], (), summary=content)
            found[int(content["seed"])] = self.used[path] = record
        return found

    def verdicts(self, claims: Sequence[Claim] | None = None) -> list[Verdict]:
        """On all chosen claims, or these."""
        testable, result = {claim.id for claim in self.tested}, []
        for claim in self.claims if claims is None else claims:
            homes = self.catalogue.homes.get(claim.recipe, {})
            cells = claim.cells if claim.id in testable else ()
            runs = {cell: self.records(homes[cell], cell) for cell in cells}
            absent = {cell: why for cell in cells if (why := self.absent.get(homes[cell], {}).get(cell))}
            result.append(decide(claim, self.catalogue.sheets.get(claim.recipe), runs, self.scale, absent))
        return result

    def setting(self, publication: str, only: str = "", called: str = "") -> Setting:
        """What the verdicts about a paper are based on."""
        own = {recipe for recipe in self.needed if recipe.startswith(f"{publication}/")}
        paths = {record.path for r in own for cell in self.needed[r] for record in self.records(r, cell).values()}
        words = dict.fromkeys(self.plans[recipe].small for recipe in sorted(own - {STUDY}))
        return Setting(
            publication=publication,
            title=title_of(publication),
            called=called or (self.data.resolve().stem if self.data else "what comes with the recipes"),
            date=datetime.now(UTC).date().isoformat(),
            scale=self.scale,
            data=self.data_words,
            settings="; ".join(filter(None, words)) if self.scale == Scale.small else "the paper's",
            runs=len(paths),
            seconds=sum(self.used[path].seconds for path in paths),
            only=only,
            code=tuple(sorted({code for path in paths for code in _codes(path)})),
        )


def _codes(run: Path) -> list[str]:
    """The versions of the code that worked on a run, with the first digits of the digest of its source."""
    file = run / manifest.FILE
    if not file.is_file():
        return []
    return [f"{code['wayfare']} ({code['source'][:8]})" for code in read_json(file)["code"].values()]
