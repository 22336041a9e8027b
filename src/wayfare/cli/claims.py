"""wayfare claims: every claim of the papers, decided from runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wayfare.cli.console import AllowCode, Json, Settings, WatchAll, answer, interruptible, parse_settings, watching
from wayfare.cli.runs import Engine, Track, Workers, trackers_of
from wayfare.papers.claims_document import claim_lines, counts, verdict_table
from wayfare.papers.paper import Scale
from wayfare.papers.verdicts import paper_effect

if TYPE_CHECKING:
    from collections.abc import Sequence

    from wayfare.papers.catalogue import ClaimCatalogue
    from wayfare.papers.claims import Claim


def claims(
    list_: Annotated[bool, typer.Option("--list", help="Show the claims and run nothing.")] = False,
    paper: Annotated[str, typer.Option(help="Only this paper's: fedvpr, fedtour, psg or fedcafe.")] = "",
    only: Annotated[str, typer.Option(help="Only these claims or recipes, comma-separated; * matches anything.")] = "",
    data: Annotated[
        Path | None, typer.Option(help="The data set of the chosen claims. Default: a synthetic town.")
    ] = None,
    scale: Annotated[
        Scale | None, typer.Option(help="The paper's settings, or small ones. Default: paper with --data.")
    ] = None,
    seeds: Annotated[
        int, typer.Option(min=1, help="At most this many seeds per cell; looked at after 4, 6, 9, 13 and 20.")
    ] = 20,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Where the runs go, as with `reproduce`; finished runs are used again.")
    ] = Path("runs"),
    no_run: Annotated[bool, typer.Option("--no-run", help="Run nothing: use only finished runs.")] = False,
    docs: Annotated[
        Path | None,
        typer.Option(help="Also write the verdicts below this folder, as files and pages."),
    ] = None,
    called: Annotated[str, typer.Option(help="With --docs: what these pages call the data.")] = "",
    engine: Engine = "auto",
    workers: Workers = 0,
    set_: Settings = None,
    track: Track = None,
    allow_code: AllowCode = None,
    json: Json = False,
) -> None:
    """Decide for each claim of the papers whether it holds: effect, interval over seeds, and the paper's effect.

    Seeds are added to a claim until it is decided, by a rule that keeps its error at 5 %. All claims take hours: begin
    with --list, then for instance wayfare claims --only 'fedvpr/gem-*'. After an interruption, run the same command
    again.
    """
    from wayfare.papers.catalogue import ClaimCatalogue
    from wayfare.papers.claim_runs import ClaimRuns
    from wayfare.papers.claims_pages import write_pages
    from wayfare.papers.claims_results import ClaimResults

    catalogue = ClaimCatalogue.read(paper)
    chosen = catalogue.choose(only)
    if list_:
        _show_list(catalogue, chosen, json)
        return
    runs = ClaimRuns(catalogue, chosen, root=out, chosen_scale=scale, data=data, changes=parse_settings(set_))
    if not no_run:
        with interruptible("the same command again"), watching() as progress:
            runs.run(seeds, engine, workers, track=trackers_of(track), listen=WatchAll(progress))
    verdicts = runs.verdicts()
    if docs is not None:
        for publication in dict.fromkeys(claim.publication for claim in chosen):
            own = [verdict for verdict in verdicts if verdict.claim.publication == publication]
            ClaimResults.of(runs.setting(publication, only, called), own).write(docs)
        write_pages(docs)
    result = {"scale": runs.scale, "data": runs.data_words, "verdicts": [verdict.as_dict() for verdict in verdicts]}
    written = [f"docs: {docs / 'claims.md'}"] if docs is not None else []
    answer(result, json, verdict_table(verdicts), counts(verdict.word for verdict in verdicts), *written)


def _show_list(catalogue: ClaimCatalogue, chosen: Sequence[Claim], json: bool) -> None:
    papers = [paper_effect(claim, catalogue.sheets.get(claim.recipe)) for claim in chosen]
    units = [catalogue.unit(claim) for claim in chosen]
    rows = [claim.as_dict() | {"paper": paper, "unit": unit} for claim, paper, unit in zip(chosen, papers, units)]
    answer({"claims": rows}, json, claim_lines(chosen, papers, units), f"{len(chosen)} claims")


def add_to(app: typer.Typer) -> None:
    """Register this command."""
    app.command()(claims)
