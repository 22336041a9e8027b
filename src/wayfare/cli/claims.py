"""wayfare claims: every claim of the papers, decided from runs."""

from __future__ import annotations

import json as json_module
import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wayfare.cli.console import Json, Settings, answer, err, parse_settings, recipes
from wayfare.cli.reproduce import Plan, Scale, missing_weights, read_cells, read_plan, seeds_of
from wayfare.cli.runs import Engine, Track, Workers, run_all
from wayfare.errors import ConfigError, DataError, WayfareError, unknown
from wayfare.ledger.claims import Claim, Sheet, check, read_claims
from wayfare.ledger.document import Setting, counts, list_table, verdict_table, write_section
from wayfare.ledger.verdicts import Verdict, decide, paper_effect
from wayfare.machine import opened
from wayfare.reports.record import Record
from wayfare.reports.reproduction import Cell, Paper

if TYPE_CHECKING:
    from wayfare.experiment import Experiment

_NO_DATA, _FAILED = (
    "not run: its data is not here",
    "not run: it failed",
)  # the errors, which name folders, are told only
STUDY = "fedtour/study"  # a recipe without cells: `wayfare study` trains many models and merges every two
_STUDY_SHEET = Sheet(
    Paper(title="FedTour, Sect. IV", metric="study/improving", unit="%", runs="fedtour"),
    {"study": Cell(paper=100 * 37315 / 53361, also={"study/mape": math.nan})},
)


def claims(
    list_: Annotated[bool, typer.Option("--list", help="Show the claims; nothing is run.")] = False,
    paper: Annotated[str, typer.Option(help="Only this paper's: fedvpr, fedtour, psg or fedcafe.")] = "",
    only: Annotated[
        str, typer.Option(help="Only these claims or recipes, comma-separated; * stands for anything.")
    ] = "",
    data: Annotated[Path | None, typer.Option(help="The data set of the chosen claims; by default the town.")] = None,
    scale: Annotated[
        Scale | None, typer.Option(help="The paper's settings, or small ones; by default paper with --data.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Seeds per cell; an interval needs two.")] = 3,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Where the runs go, as those of `reproduce` do; what is there is used.")
    ] = Path("runs"),
    no_run: Annotated[bool, typer.Option("--no-run", help="Decide from the runs that there are.")] = False,
    docs: Annotated[Path | None, typer.Option(help="Also write the verdicts into this Markdown file.")] = None,
    engine: Engine = "auto",
    workers: Workers = 0,
    set_: Settings = None,
    track: Track = None,
    json: Json = False,
) -> None:
    """Say for each claim of the papers whether it holds: effect, interval over seeds, and the paper's effect beside it.

    Runs what is missing, which takes hours for all of them: begin with --list, then for instance
    wayfare claims --only 'fedvpr/gem-*'. Give the same command again to go on after an interruption.
    """
    ledger = Ledger.read(paper)
    chosen = ledger.choose(only)
    if list_:
        papers = [paper_effect(claim, ledger.sheets.get(claim.recipe)) for claim in chosen]
        units = [ledger.sheets[claim.recipe].unit(claim) if claim.recipe else "" for claim in chosen]
        shown = list_table(chosen, papers, units)
        answer({"claims": [_as_dict(*row) for row in zip(chosen, papers, units)]}, json, shown, f"{len(chosen)} claims")
        return
    bench = Bench(ledger, chosen, out, scale, data, parse_settings(set_))
    if not no_run:
        with opened(engine, workers) as machine:
            bench.run(seeds, machine, track)
    verdicts = bench.verdicts()
    if docs is not None:
        for publication in dict.fromkeys(claim.publication for claim in chosen):
            own = [verdict for verdict in verdicts if verdict.claim.publication == publication]
            write_section(docs, bench.setting(publication, only), own)
    result = {"scale": bench.scale, "data": bench.data_words, "verdicts": [verdict.as_dict() for verdict in verdicts]}
    told = [f"docs: {docs}"] if docs is not None else []
    answer(result, json, verdict_table(verdicts), counts(verdicts), *told)


def claim_files() -> dict[str, Path]:
    """The files of claims that come with Wayfare, by paper."""
    package = Path(__file__).resolve().parents[1]
    found: dict[str, Path] = {}
    for root in (package / "claims", package.parents[1] / "claims"):
        found |= {file.stem: file for file in sorted(root.glob("*.toml"))}
    return found


@dataclass(frozen=True)
class Ledger:
    """All claims, and the recipes that they are about."""

    claims: tuple[Claim, ...]
    sheets: Mapping[str, Sheet]  # recipe -> its cells, and those of the recipes that share its runs
    homes: Mapping[str, Mapping[str, str]]  # recipe -> cell -> the recipe that has it

    @classmethod
    def read(cls, paper: str = "") -> Ledger:
        """Read and check those of one paper, or all."""
        files = claim_files()
        if paper and paper not in files:
            raise unknown("paper", paper, files, "--paper")
        files = {paper: files[paper]} if paper else files
        of_papers = {name: path for name, path in recipes().items() if name.partition("/")[0] in files}
        found = {name: table for name, path in of_papers.items() if (table := read_cells(path)) is not None}
        sheets: dict[str, Sheet] = {STUDY: _STUDY_SHEET}
        homes: dict[str, dict[str, str]] = {STUDY: {"study": STUDY}}
        for name, (paper_table, own) in found.items():
            cells, home = dict(own), dict.fromkeys(own, name)
            for other, (its, further) in found.items():
                if its.runs == paper_table.runs and its.runs:
                    cells = dict(further) | cells
                    home = dict.fromkeys(further, other) | home
            sheets[name], homes[name] = Sheet(paper_table, cells), home
        claims = read_claims(files.values())
        check(claims, sheets)
        return cls(claims, sheets, homes)

    def choose(self, only: str) -> tuple[Claim, ...]:
        """By names or patterns; all of them by default."""
        wanted = [name.strip() for name in only.split(",") if name.strip()]
        for name in wanted:
            if not any(_fits(claim, name) for claim in self.claims):
                raise unknown("claim", name, [claim.id for claim in self.claims], "--only")
        return tuple(claim for claim in self.claims if not wanted or any(_fits(claim, name) for name in wanted))


def _fits(claim: Claim, name: str) -> bool:
    return any(fnmatchcase(known, name) for known in (claim.id, claim.id.partition("/")[2], claim.recipe))


def _as_dict(claim: Claim, paper: float | None, unit: str) -> dict[str, Any]:
    names = (
        "id", "claim", "source", "recipe", "metric", "statistic", "above", "below", "along", "direction", "margin",
        "paper_disagrees", "note", "paper_scale_only", "untested",
    )  # fmt: skip
    return {name: getattr(claim, name) for name in names} | {"paper": paper, "unit": unit}


@dataclass
class Bench:
    """The runs that claims need, in the folders where `wayfare reproduce` has them."""

    ledger: Ledger
    claims: Sequence[Claim]
    root: Path
    scale_wanted: Scale | None
    data: Path | None
    changes: Mapping[str, Any] = field(default_factory=dict)  # --set
    absent: dict[str, dict[str, str]] = field(default_factory=dict)  # recipe -> cell -> why it has no runs
    used: dict[Path, Record] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.data is not None and not self.data.exists():
            raise ConfigError(f"--data {self.data}: there is no such file or folder")
        sets = dict.fromkeys(self.ledger.sheets[claim.recipe].paper.data for claim in self.tested)
        if self.data is not None and len(sets) > 1:
            named = ", ".join(repr(name) if name else "CIFAR-10" for name in sets)
            raise ConfigError(
                f"--data is one data set, and the chosen claims are about {named}: choose with --paper and --only"
            )

    @property
    def scale(self) -> str:
        return (self.scale_wanted or (Scale.small if self.data is None else Scale.paper)).value

    @property
    def data_words(self) -> str:
        """Not the whole path: it would tell where this machine keeps its files."""
        name = "what comes with the recipes" if self.data is None else self.data.resolve().name
        return ", ".join([name, *(f"{key} = {value}" for key, value in self.changes.items())])

    @property
    def tested(self) -> list[Claim]:
        """Those that runs of this scale can decide."""
        return [c for c in self.claims if not c.untested and (self.scale == Scale.paper or not c.paper_scale_only)]

    @cached_property
    def needed(self) -> dict[str, list[str]]:
        """Recipe -> cells, each once."""
        found: dict[str, dict[str, None]] = {}
        for claim in self.tested:
            for cell in claim.cells:
                found.setdefault(self.ledger.homes[claim.recipe][cell], {})[cell] = None
        return {recipe: list(cells) for recipe, cells in found.items()}

    @cached_property
    def plans(self) -> dict[str, Plan]:
        """Recipes as experiments, but for the study."""
        known = recipes()
        return {
            recipe: read_plan(known[recipe], Scale(self.scale), self.data, self.changes, cells)
            for recipe, cells in self.needed.items()
            if recipe != STUDY
        }

    def folder(self, plan: Plan) -> Path:
        """As `wayfare reproduce` has it, below another root."""
        return self.root / plan.folder.relative_to("runs")

    def run(self, seeds: int, machine: Any, track: list[str] | None) -> None:
        """What is missing."""
        batches: dict[Path, dict[str, Experiment]] = {}
        homes: dict[Path, dict[str, str]] = {}  # folder -> cell -> recipe
        for recipe, plan in self.plans.items():
            for cell in self.needed[recipe]:
                if weights := missing_weights(plan.experiments[cell]):
                    self.absent.setdefault(recipe, {})[cell] = f"its weights, {weights}, are not here"
                    continue
                batches.setdefault(self.folder(plan), {}).update(seeds_of(plan, cell, seeds))
                homes.setdefault(self.folder(plan), {})[cell] = recipe
        for folder, batch in batches.items():
            run_all(batch, folder, machine, track, partial(self._left_out, homes[folder]))
        if STUDY in self.needed:
            self._study(seeds, machine)

    def _left_out(self, homes: Mapping[str, str], run: str, error: WayfareError) -> None:
        """A setting may not fit every cell, and one paper's data may be missing where another's is there."""
        cell = run.partition("/")[0]
        err.print(f"[red]not run[/red] {homes[cell]}, {run}: {error}", highlight=False, soft_wrap=True)
        self.absent.setdefault(homes[cell], {})[cell] = _NO_DATA if isinstance(error, DataError) else _FAILED

    def _study(self, seeds: int, machine: Any) -> None:
        """FedTour's study of merges, once per seed; it keeps no run folder, so its numbers are kept here."""
        from wayfare.cli.study import conduct, summarise
        from wayfare.policies.predictors.regressor import fit

        first = self._study_experiment.seed
        for seed in range(first, first + seeds):
            file = self._study_file(seed)
            if file.is_file():
                continue
            err.print(f"study of merges, seed {seed} ...", highlight=False)
            begun, experiment = datetime.now(UTC), self._study_experiment.with_seed(seed)
            try:
                found = conduct(experiment, machine, 231, 1000, lambda text, done, total: None)
            except DataError as error:
                err.print(f"[red]not run[/red] {STUDY}: {error}", highlight=False, soft_wrap=True)
                self.absent[STUDY] = {"study": _NO_DATA}
                return
            summary = summarise(found, fit(found, seed)[1])
            metrics = {f"study/{name}": summary[name] for name in ("improving", "mape")}
            file.parent.mkdir(parents=True, exist_ok=True)
            seconds = (datetime.now(UTC) - begun).total_seconds()
            content = {"seed": seed, "seconds": seconds, "metrics": metrics, "experiment": experiment.to_toml()}
            file.write_text(json_module.dumps(content), encoding="utf-8")

    @cached_property
    def _study_experiment(self) -> Experiment:
        from wayfare.experiment import Experiment

        changes = dict(self.changes) | ({} if self.data is None else {"task.path": str(self.data.resolve())})
        return Experiment.read(recipes()[STUDY], changes)

    def _study_file(self, seed: int | str) -> Path:
        return self.root / "fedtour" / self.scale / "study" / f"seed-{seed}.json"

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
                wanted = plan.experiments[cell].with_seed(int(record.experiment["seed"]))
                if not wanted.is_in(record.recipe):
                    raise ConfigError(f"{path} holds a run with other settings: remove it, or choose another --out")
                self.used[path] = record
            found[int(self.used[path].experiment["seed"])] = self.used[path]
        return found

    def _study_records(self) -> dict[int, Record]:
        found = {}
        pattern = self._study_file("*")
        for path in sorted(pattern.parent.glob(pattern.name)):
            content = json_module.loads(path.read_text(encoding="utf-8"))
            if not self._study_experiment.with_seed(content["seed"]).is_in(content["experiment"]):
                raise ConfigError(f"{path} is of other settings: remove it, or choose another --out")
            record = Record(path, {"seed": content["seed"]}, content["experiment"], (), summary=content)
            found[int(content["seed"])] = self.used[path] = record
        return found

    def verdicts(self) -> list[Verdict]:
        """Of all chosen claims."""
        testable, result = {claim.id for claim in self.tested}, []
        for claim in self.claims:
            homes = self.ledger.homes.get(claim.recipe, {})
            cells = claim.cells if claim.id in testable else ()
            runs = {cell: self.records(homes[cell], cell) for cell in cells}
            absent = {cell: why for cell in cells if (why := self.absent.get(homes[cell], {}).get(cell))}
            result.append(decide(claim, self.ledger.sheets.get(claim.recipe), runs, self.scale, absent))
        return result

    def setting(self, publication: str, only: str) -> Setting:
        """What the verdicts about a paper rest on."""
        own = {recipe for recipe in self.needed if recipe.startswith(f"{publication}/")}
        paths = {record.path for r in own for cell in self.needed[r] for record in self.records(r, cell).values()}
        words = dict.fromkeys(self.plans[recipe].small for recipe in sorted(own - {STUDY}))
        seconds = sum(self.used[path].seconds for path in paths)
        today = datetime.now(UTC).date().isoformat()
        title = _title(claim_files()[publication])
        settings = "; ".join(filter(None, words)) if self.scale == Scale.small else "the paper's"
        return Setting(publication, title, today, self.scale, self.data_words, settings, len(paths), seconds, only)


def _title(file: Path) -> str:
    """The paper's title."""
    return str(tomllib.loads(file.read_text(encoding="utf-8")).get("title", file.stem))


def add_to(app: typer.Typer) -> None:
    """Register this command."""
    app.command()(claims)
