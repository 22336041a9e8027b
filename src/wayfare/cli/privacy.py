"""wayfare privacy: the noise that a wanted epsilon needs, and what a run has spent."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from wayfare.cli.console import Json, answer, plain_table
from wayfare.core.errors import ConfigError

app = typer.Typer(no_args_is_help=True, help="Differential privacy: plan the noise, see what a run has spent.")
_EPSILONS = (1.0, 2.0, 4.0, 8.0, 16.0)


@app.command()
def plan(
    clients: Annotated[int, typer.Option(min=1, help="How many clients there are.")],
    rounds: Annotated[int, typer.Option(min=1, help="How many rounds are run.")],
    per_round: Annotated[int, typer.Option(min=0, help="Clients asked in a round, on average. Default: all.")] = 0,
    epsilon: Annotated[
        float | None, typer.Option(min=0.01, help="The epsilon that may be spent. Default: a table of several.")
    ] = None,
    delta: Annotated[
        float | None, typer.Option(min=1e-12, max=0.5, help="Default: 1 / clients^1.1, at most 0.00001.")
    ] = None,
    json: Json = False,
) -> None:
    """Compute how much noise an epsilon needs, for the table [bold][privacy][/bold] of a recipe.

    The guarantee is for a client: what is published is almost equally likely with and without all of its photos. The
    noise is the standard deviation over the clip. The loss in accuracy depends on the noise in the mean, which shrinks
    as more clients are asked.
    """
    from wayfare.privacy.accounting import noise_for

    if per_round > clients:
        raise ConfigError(f"--per-round {per_round} is more than --clients {clients}")
    asked, chance = per_round or clients, min(clients**-1.1, 1e-5) if delta is None else delta
    wanted = _EPSILONS if epsilon is None else (epsilon,)
    plans: list[dict[str, float]] = []
    for budget in wanted:
        noise = noise_for(asked / clients, rounds, chance, budget)
        plans.append({"epsilon": budget, "noise": noise, "noise_in_mean": noise / asked})
    table = plain_table(f"{clients:,} clients, {asked:,} a round, {rounds:,} rounds, delta {chance:.1e}")
    for name in ("epsilon", "privacy.noise", "noise in the mean, of the clip"):
        table.add_column(name, justify="right")
    for one in plans:
        table.add_row(f"{one['epsilon']:g}", f"{one['noise']:.2f}", f"{one['noise_in_mean']:.4f}")
    settings = {"clients": clients, "per_round": asked, "rounds": rounds, "delta": chance}
    answer({**settings, "plans": plans}, json, table)


@app.command()
def spent(
    run: Annotated[Path, typer.Argument(help="The folder of a run with a table \\[privacy].")], json: Json = False
) -> None:
    """Show the epsilon that a run has spent so far, according to its ledger."""
    from wayfare.core.protocols import MergeContext
    from wayfare.experiment import Experiment
    from wayfare.pages.record import Record
    from wayfare.partition.split import load_split
    from wayfare.privacy.client_level import ClientLevel
    from wayfare.privacy.ledger import Ledger
    from wayfare.privacy.sample_level import SampleLevel

    record = Record.read(run)
    experiment = Experiment.from_toml(record.recipe)
    settings = experiment.privacy
    if not isinstance(settings, ClientLevel | SampleLevel):
        raise ConfigError(f"{run} has no table [privacy]: what it published is not protected by noise")
    ledger, sizes = Ledger(run), tuple[int, ...]()
    ledger.check([line.round for line in record.rounds if line.round and not line.void])
    if isinstance(settings, SampleLevel):
        sizes = experiment.clients(load_split((run / "partition.safetensors").read_bytes())).training_sizes()
    begun = len({release.round for release in ledger.releases})
    spent = settings.spent(MergeContext(begun, folder=run, sizes=sizes, training=experiment.training))
    found: dict[str, Any] = {
        "run": str(run), **spent, "unit": settings.unit, "releases": len(ledger.releases), "rounds": record.done,
        "budget": settings.epsilon or None,
    }  # fmt: skip
    budget = f" of {settings.epsilon:g}" if settings.epsilon else ", no budget"
    whose = "a client with all its samples" if settings.unit == "client" else "one sample"
    line = f"epsilon {spent['epsilon']:.3f}{budget} (delta {settings.delta:g}) for {whose}, {begun} rounds"
    answer(found, json, Text(line))


def add_to(parent: typer.Typer) -> None:
    """Register these commands."""
    parent.add_typer(app, name="privacy")
