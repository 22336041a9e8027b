"""wayfare meet: one of the devices that meet."""

from __future__ import annotations

import signal
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from wayfare.cli.console import AllowCode, Json, Settings, answer, err, parse_settings
from wayfare.core.errors import ConfigError
from wayfare.papers.files import recipe_path


def meet(
    recipe: Annotated[str, typer.Argument(help="A recipe with topology.name = 'encounters': path or name.")],
    name: Annotated[str, typer.Option(help="What others know it by: letters, digits, - and _.")],
    photos: Annotated[Path | None, typer.Option(help="The folder that this device has. No photo leaves it.")] = None,
    probe: Annotated[
        Path | None, typer.Option(help="Pictures that say how good a model is. Default: its own held-out ones.")
    ] = None,
    listen: Annotated[str, typer.Option(help="Where it can be called, HOST:PORT.")] = "127.0.0.1:8100",
    peer: Annotated[
        list[str] | None, typer.Option("--peer", help="A device to call, HOST:PORT. Repeatable.", metavar="ADDRESS")
    ] = None,
    discover: Annotated[
        bool, typer.Option("--discover", help="Find others on the local network, by mDNS: wayfare\\[meet].")
    ] = False,
    signage: Annotated[
        bool, typer.Option("--signage", help="It stands still, has no photos and trains nothing; needs --probe.")
    ] = False,
    known_only: Annotated[
        bool, typer.Option("--known-only", help="Meet only devices whose keys are in HOME/known.json.")
    ] = False,
    published: Annotated[
        str, typer.Option(help="The lowest, median and highest accuracy of all devices, as 0.1,0.4,0.8, if known.")
    ] = "",
    meetings: Annotated[
        int, typer.Option(min=0, help="End after so many meetings since its first start; 0: only when interrupted.")
    ] = 0,
    slot: Annotated[float, typer.Option(min=0, help="At most one meeting in so many seconds; 0: the recipe's.")] = 0.0,
    deadline: Annotated[float, typer.Option(min=1, help="Seconds that a meeting may take.")] = 120.0,
    home: Annotated[Path | None, typer.Option(help="Where it keeps its state. Default: ~/.wayfare/peers/NAME.")] = None,
    set_: Settings = None,
    allow_code: AllowCode = None,
    json: Json = False,
) -> None:
    """Be a device that meets others and exchanges models with them, without a server.

    It trains on its own folder, calls the devices that it knows of, and answers those that call. The recipe's policy
    decides what it sends and takes. It can be killed at any time, and goes on with the same command.
    """
    from wayfare.core.bundle import digest
    from wayfare.experiment import Experiment
    from wayfare.io.address import Address
    from wayfare.meeting.program import MeetingPlan, budget, opened

    plan = MeetingPlan(
        experiment=Experiment.read(recipe_path(recipe), parse_settings(set_)),
        photos=photos,
        probe=probe,
        name=name,
        home=home or Path("~/.wayfare/peers").expanduser() / name,
        listen=Address.read(listen),
        peers=tuple(Address.read(each) for each in peer or ()),
        discover=discover,
        signage=signage,
        strangers=not known_only,
        published=_published(published),
        meetings=meetings,
        slot=slot,
        deadline=deadline,
    )
    signal.signal(signal.SIGTERM, signal.default_int_handler)

    def notify(text: str) -> None:
        err.print(text, markup=False, highlight=False, soft_wrap=True)

    with opened(plan, notify) as found:
        notify(f"{name} is at {listen}, key {found.identity.key}; its state is in {plan.home}")
        try:
            found.run()
        except KeyboardInterrupt:
            notify("interrupted: the same command goes on")
        left = budget(found)
        result = {
            "name": name,
            "key": found.identity.key,
            "model_sha256": digest(found.device.state.model["model"]),
            "score": float(found.device.state.columns["score"][0]),
            "meetings": found.diary.meetings,
            **left,
            "ledger": [asdict(line) for line in found.diary.ledger],
        }
        text = (
            f"{name}: {result['meetings']} meetings, sent {left['sent']}, taken {left['taken']}, "
            f"accuracy {result['score']:.3f}; left: {left['can_send']} to send, {left['can_take']} to take"
        )
        answer(result, json, text)


def _published(text: str) -> tuple[float, float, float] | None:
    if not text:
        return None
    try:
        low, middle, high = (float(part) for part in text.split(","))
    except ValueError as error:
        raise ConfigError(f"--published {text!r}: expected three accuracies, such as 0.1,0.4,0.8") from error
    if not 0 <= low <= middle <= high <= 1:
        raise ConfigError(f"--published {text!r}: expected accuracies from 0 to 1, the lowest first")
    return low, middle, high


def add_to(app: typer.Typer) -> None:
    """Register this command."""
    app.command()(meet)
