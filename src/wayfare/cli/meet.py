"""wayfare meet: one of the devices that meet; wayfare peer: inviting devices, and what one has done."""

from __future__ import annotations

import contextlib
import math
import signal
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from wayfare.cli.console import AllowCode, Json, Settings, answer, err, parse_settings, plain_table
from wayfare.core.errors import ConfigError
from wayfare.pages.tables import plain
from wayfare.papers.files import recipe_path

if TYPE_CHECKING:
    from wayfare.experiment import Experiment
    from wayfare.meeting.invitation import Invitation
    from wayfare.meeting.peer import MeetingPeer

_HOMES = "~/.wayfare/peers"
Home = Annotated[Path | None, typer.Option(help="Where it keeps its state. Default: ~/.wayfare/peers/NAME.")]
Published = Annotated[
    str, typer.Option(help="If known: lowest, median and highest accuracy of all devices, such as 0.1,0.4,0.8.")
]
peer_app = typer.Typer(no_args_is_help=True, help="Invite devices that meet, and see what one of them has done.")


def meet(
    recipe: Annotated[
        str,
        typer.Argument(
            help="A recipe with topology.name = 'encounters', path or name; or the file of an invitation, which has "
            "the recipe and the name in it."
        ),
    ],
    name: Annotated[str, typer.Option(help="The name by which other devices know it: letters, digits, - and _.")] = "",
    photos: Annotated[
        Path | None, typer.Option(help="This device's folder of photos. No file in it leaves this machine.")
    ] = None,
    probe: Annotated[
        Path | None, typer.Option(help="Pictures to test models on. Default: held-out photos of its own.")
    ] = None,
    listen: Annotated[str, typer.Option(help="Address for other devices, HOST:PORT.")] = "127.0.0.1:8100",
    peer: Annotated[
        list[str] | None, typer.Option("--peer", help="A device to call, HOST:PORT. Repeatable.", metavar="ADDRESS")
    ] = None,
    discover: Annotated[
        bool, typer.Option("--discover", help="Also find devices on the local network by mDNS; needs wayfare\\[meet].")
    ] = False,
    signage: Annotated[
        bool, typer.Option("--signage", help="A fixed device, without photos or training; needs --probe.")
    ] = False,
    known_only: Annotated[
        bool, typer.Option("--known-only", help="Meet only devices whose keys are in HOME/known.json.")
    ] = False,
    published: Published = "",
    record_from: Annotated[
        list[str] | None,
        typer.Option(
            "--record-from",
            help="Believe the record that this signage publishes. Invited signage is always believed. Repeatable.",
            metavar="NAME",
        ),
    ] = None,
    new_day: Annotated[
        bool, typer.Option("--new-day", help="Begin with a new budget, and the record of the day before.")
    ] = False,
    meetings: Annotated[
        int, typer.Option(min=0, help="Stop after this many meetings since the first start; 0: run until interrupted.")
    ] = 0,
    slot: Annotated[
        float, typer.Option(min=0, help="At most one meeting in this many seconds; 0: the recipe's.")
    ] = 0.0,
    deadline: Annotated[float, typer.Option(min=1, help="Longest duration of a meeting in seconds.")] = 120.0,
    home: Home = None,
    set_: Settings = None,
    allow_code: AllowCode = None,
    json: Json = False,
) -> None:
    """Meet other devices and exchange models with them, without a server.

    The device trains on its own folder, calls the devices it knows, and answers those that call. The recipe's policy
    decides what it sends and accepts. It can be killed at any time; the same command continues.
    [bold]wayfare peer show NAME[/bold] shows what it has done.
    """
    from wayfare.io.address import Address
    from wayfare.meeting.program import MeetingPlan, opened
    from wayfare.meeting.published import PublishedRecord

    invitation = _invitation(Path(recipe))
    if invitation is not None and name not in ("", invitation.name):
        raise ConfigError(f"the invitation is for {invitation.name!r}: leave out --name")
    name = invitation.name if invitation else name
    if not name:
        raise ConfigError("--name is missing: give the name by which others know this device")
    given = published or (invitation.published if invitation else "")
    plan = MeetingPlan(
        experiment=_experiment(recipe, invitation, parse_settings(set_)),
        photos=photos,
        probe=probe,
        name=name,
        home=home or Path(_HOMES).expanduser() / name,
        listen=Address.read(listen),
        peers=tuple(Address.read(each) for each in [*(peer or ()), *(invitation.peers if invitation else ())]),
        discover=discover,
        signage=signage or bool(invitation and invitation.signage),
        strangers=not known_only,
        invited=invitation.credentials if invitation else None,
        published=PublishedRecord.read(given) if given else None,
        trusts=tuple(record_from or ()),
        new_day=new_day,
        meetings=meetings,
        slot=slot,
        deadline=deadline,
    )
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with opened(plan, _notify) as found:
        _notify(f"{name} is at {listen}, key {found.identity.key}; its state is in {plan.home}")
        with _until_interrupted(found):
            found.run()
        _report(found, json)


def _invitation(path: Path) -> Invitation | None:
    from wayfare.meeting.invitation import is_invitation, read_invitation

    if path.suffix != ".invite" and not is_invitation(path):
        return None
    found = read_invitation(path)
    if path.stat().st_mode & 0o077:
        err.print(f"warning: others can read {path}; it holds this device's key: chmod 600", markup=False)
    return found


def _experiment(recipe: str, invitation: Invitation | None, changes: dict[str, Any]) -> Experiment:
    import tomllib

    from wayfare.experiment import Experiment
    from wayfare.recipe import override

    if invitation is None:
        return Experiment.read(recipe_path(recipe), changes)
    return Experiment.from_table(override(tomllib.loads(invitation.recipe), changes))


def _notify(text: str) -> None:
    err.print(text, markup=False, highlight=False, soft_wrap=True)


@contextlib.contextmanager
def _until_interrupted(peer: MeetingPeer) -> Iterator[None]:
    """The first signal ends it in good order; a second one at once."""

    def ended(number: int, frame: object) -> None:
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, signal.default_int_handler)
        peer.stop()

    before = {each: signal.signal(each, ended) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _report(peer: MeetingPeer, json: bool) -> None:
    from wayfare.core.bundle import digest
    from wayfare.meeting.diary import number_or_none
    from wayfare.meeting.program import budget

    name, diary, left = peer.identity.name, peer.diary, budget(peer)
    score = float(peer.device.state.columns["score"][0])
    result = {
        "name": name,
        "key": peer.identity.key,
        "model_sha256": digest(peer.device.state.model["model"]),
        "score": number_or_none(score),
        "meetings": diary.meetings,
        **left,
        "ledger": [asdict(line) for line in diary.ledger],
        "encounters": [asdict(line) for line in diary.encounters],
    }
    accuracy = "" if math.isnan(score) else f", accuracy {score:.3f}"
    text = (
        f"{name}: {diary.meetings} meetings, sent {left['sent']}, taken {left['taken']}{accuracy}; "
        f"left: {left['can_send']} to send, {left['can_take']} to take. The same command continues"
    )
    answer(result, json, text)


@peer_app.command()
def invite(
    name: Annotated[str, typer.Argument(help="The device's name: letters, digits, - and _.")],
    recipe: Annotated[str, typer.Option(help="A recipe with topology.name = 'encounters': path or name.")],
    group: Annotated[Path, typer.Option(help="The folder with the group's keys. Who has it can invite.")] = Path(
        "group"
    ),
    peer: Annotated[
        list[str] | None,
        typer.Option("--peer", help="The address of a device to call, HOST:PORT. Repeatable.", metavar="ADDRESS"),
    ] = None,
    published: Published = "",
    signage: Annotated[
        bool, typer.Option("--signage", help="A fixed device, whose published record the others believe.")
    ] = False,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The file. Default: NAME.invite.")] = None,
    days: Annotated[int, typer.Option(min=1, help="How long a new group lasts.")] = 365,
    set_: Settings = None,
    allow_code: AllowCode = None,
    json: Json = False,
) -> None:
    """Invite a device: write one file with all that it needs to meet the others of its group.

    The first invitation makes the group. Devices of a group meet only each other. The file has the recipe and the
    device's private key, which is kept nowhere else: give it to the device's owner over a secure channel.
    """
    from wayfare.experiment import Experiment
    from wayfare.io.address import Address
    from wayfare.meeting.invitation import GroupGuest
    from wayfare.meeting.invitation import invite as write_invitation
    from wayfare.meeting.published import PublishedRecord

    guest = GroupGuest(
        name=name,
        experiment=Experiment.read(recipe_path(recipe), parse_settings(set_)),
        peers=[Address.read(each) for each in peer or ()],
        published=PublishedRecord.read(published) if published else None,
        signage=signage,
    )
    file = out or Path(f"{name}.invite")
    write_invitation(group, guest, days, file)
    use = "--probe PICTURES" if signage else "--photos DIR"
    text = f"{file}: for {name}, of the group in {group}. On the device: wayfare meet {file.name} {use}"
    answer({"invitation": str(file), "name": name, "group": str(group), "signage": signage}, json, text)


@peer_app.command()
def show(
    name: Annotated[str, typer.Argument(help="The device's name, or its folder (with a /).")],
    home: Home = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Also write a page.")] = None,
    json: Json = False,
) -> None:
    """Show whom a device has met, what it took, what it gained, and what is left of its budget.

    It reads the device's own files, also while the device is running. Nothing is sent.
    """
    from wayfare.meeting.peer_page import PeerRecord, write_peer_page

    folder = Path(name) if "/" in name else Path(_HOMES).expanduser() / name  # a name has no /
    record = PeerRecord.read(home or folder)
    met = ("device", "meetings", "announced", "taken", "sent", "gain")
    took = ("from", "", "meeting", "predicted", "before", "after")
    page = [f"page: {write_peer_page(record, out)}"] if out is not None else []
    answer(
        record.as_json(), json, _table(f"{record.name} has met", met, record.people()),
        _table("What it took, the last first", took, record.taken_rows()), record.in_words(), *page,
    )  # fmt: skip


def _table(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    table = plain_table(title)
    for head in heads:
        table.add_column(head)
    for row in rows:
        table.add_row(*(Text(plain(cell)) for cell in row))
    return table


def add_to(app: typer.Typer) -> None:
    """Register these commands."""
    app.command()(meet)
    app.add_typer(peer_app, name="peer")
