"""wayfare explain-traffic: what leaves a device."""

from __future__ import annotations

import typer

from wayfare.cli.console import AllowCode, Json, Recipe, Settings, answer, parse_settings
from wayfare.papers.files import recipe_path


def explain_traffic(recipe: Recipe, set_: Settings = None, allow_code: AllowCode = None, json: Json = False) -> None:
    """Show what leaves a device in an experiment, and what that could reveal.

    One round of one device is simulated here, with one training step: names, shapes and bytes are those of the message
    that it would send.
    """
    from wayfare.experiment import Experiment
    from wayfare.traffic import explain, traffic_page

    found = explain(Experiment.read(recipe_path(recipe), parse_settings(set_)))
    answer(found, json, traffic_page(found))


def add_to(app: typer.Typer) -> None:
    """Register this command."""
    app.command("explain-traffic")(explain_traffic)
