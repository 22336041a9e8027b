"""wayfare leakage: what the server learns from what devices send."""

from __future__ import annotations

from typing import Annotated

import typer

from wayfare.cli.console import AllowCode, Json, Recipe, Settings, answer, parse_settings
from wayfare.papers.files import recipe_path

Rounds = Annotated[int, typer.Option(min=1, help="Number of rounds to record, at most the recipe's.", metavar="N")]


def leakage(
    recipe: Recipe, set_: Settings = None, rounds: Rounds = 12, allow_code: AllowCode = None, json: Json = False
) -> None:
    """Measure what a curious server learns about devices in an experiment.

    The first rounds run here, in one process. Attacks on the devices' replies try to find out which classes a device
    has, whether a given sample was trained on, and what a sample looks like. Every figure is shown with its baseline.
    """
    from wayfare.experiment import Experiment
    from wayfare.leakage import measure
    from wayfare.leakage.page import leakage_page

    found = measure(Experiment.read(recipe_path(recipe), parse_settings(set_)), rounds)
    answer(found, json, leakage_page(found))


def add_to(app: typer.Typer) -> None:
    """Register this command."""
    app.command("leakage")(leakage)
