"""What a node of Flower runs: any program, as any device, of the experiment that a message brings.

This is to Flower what `worker.py` is to the pool. It must import quickly, because Flower may start a process for every
message; torch and the rest come with the first one. What it builds then stays for the next.
"""

from __future__ import annotations

import faulthandler
import math
import os
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from flwr.clientapp import ClientApp

from wayfare.core.errors import StoreError, WayfareError

if TYPE_CHECKING:
    from flwr.app import Context, Message

    from wayfare.core.bundle import Bundle
    from wayfare.core.device import Bench

_GRACE = 5.0  # a program stops by itself at the deadline; this long after it, its process is ended

app = ClientApp()


def answer(message: Message, context: Context) -> Message:
    """Do what the message asks; whatever goes wrong is in the reply."""
    from flwr.app import ConfigRecord, Message, RecordDict

    outcome: dict[str, Any] = {}
    records: dict[str, Any] = {}
    at_home = "photos" in context.node_config
    try:
        records = _perform(message, context, outcome)
        if at_home and records:
            _tell(message, context, records)
    except StoreError as error:  # a full disk is no fault of the device: leaving it out would change the result
        outcome = {"stopped": str(error)}
    except Exception as error:
        outcome = {"failed": f"{type(error).__name__}: {error}", "detail": traceback.format_exc()}
    if at_home and outcome:
        outcome = _discreet(outcome, Path(str(context.node_config["home"])))
    return Message(RecordDict({"outcome": ConfigRecord(outcome), **records}), reply_to=message)


app.query()(answer)


def _tell(message: Message, context: Context, records: dict[str, Any]) -> None:
    """Say in the node's own log what was done and what leaves it."""
    from wayfare.deploy.node_log import say

    call: Any = message.content["call"]
    asked: Any = message.content.get("values", {})
    words = [str(call["program"]), *([f"round {asked['round']}"] if "round" in asked else [])]
    words += _figures(records.get("values", {}))
    if "then" in call:
        words += [f"then {call['then']}", *_figures(records.get("then/values", {}))]
    size = sum(len(array.data) for record in records.values() for array in _arrays(record))
    say(Path(str(context.node_config["home"])), f"{', '.join(words)}: sent {size:,} bytes of tensors")


def _figures(values: Any) -> list[str]:
    return [f"{name} {values[name]:.4g}" for name in sorted(values) if isinstance(values[name], float)][:4]


def _arrays(record: Any) -> list[Any]:
    from flwr.app import ArrayRecord

    return list(record.values()) if isinstance(record, ArrayRecord) else []


def _discreet(outcome: dict[str, Any], home: Path) -> dict[str, Any]:
    """What goes wrong with somebody's own photographs is told there: messages name files. The server hears its kind."""
    from wayfare.deploy.node_log import say

    key = next(iter(outcome))
    say(home, f"{outcome[key]}\n{outcome.get('detail', '')}")
    kind = "StoreError" if key == "stopped" else str(outcome[key]).partition(":")[0]
    return {"failed": f"{kind}: the node's own log says more"}


def _perform(message: Message, context: Context, outcome: dict[str, Any]) -> dict[str, Any]:
    """Run the program; returns the reply's records, or says in `outcome` why there are none."""
    from wayfare.components import allow_code
    from wayfare.core.bundle import Bundle
    from wayfare.core.protocols import Failure
    from wayfare.engines.flower import records
    from wayfare.engines.flower.memory import NodeMemories
    from wayfare.engines.programs import perform

    call: Any = message.content["call"]
    node: Any = context.node_config
    home, photos = Path(str(node.get("home", ""))), str(node.get("photos", ""))  # none in a simulation
    # a server's recipe may name only what the owner of this node has allowed; a simulation is the caller's own machine
    allow_code(*(str(node.get("allow_code", "")).split() if photos else call.get("allow_code", ())))
    left = float(call["seconds"])
    if call["until"]:  # by the one clock: a message may have waited, or be here for the second time
        left = min(left, float(call["until"]) - time.time())
    # of the server's paths a node takes none: one to sign in at is for a simulation
    with _signed_in(Path() if photos else Path(call["sign_in"])), _ended_after(left):
        if call["program"] == "hello":
            return records.write(_about(call["experiment"], photos, str(node["name"])))
        folder = home / "runs" / _as_name(call["folder"]) if photos else Path(call["folder"])
        bench = _bench(call["experiment"], str(folder), photos, str(node.get("name", "")))
        if call["program"] == "ready":
            return records.write(Bundle())
        bench.memories = NodeMemories(folder / "memory", context.state, call["opening"])
        received = records.read(message.content)
        end = time.monotonic() + left
        reply = perform(bench, call["program"], call["device"], received, end)
        if isinstance(reply, Failure):
            outcome |= {"failed": reply.reason, "detail": reply.detail}
            return {}
        content = records.write(reply)
        if "then" in call:  # something that will be asked next, about the same tensors; if it fails, it is asked again
            values: Any = message.content[records.THEN]
            after = perform(bench, call["then"], call["device"], Bundle(received.tensors, dict(values)), end)
            content |= {} if isinstance(after, Failure) else records.write_then(after)
        return content


def _as_name(text: str) -> str:
    """A text as the name of one folder: `..` is none."""
    return quote(text, safe="").replace(".", "%2E")


@contextmanager
def _signed_in(sign_in: Path) -> Iterator[None]:
    """Leave this process's number where the engine can find it, on its own machine; refuse if it waits no more."""
    if sign_in == Path() or not sign_in.parent.is_dir():
        yield
        return
    mark = sign_in / str(os.getpid())
    try:
        mark.touch()
    except FileNotFoundError:
        raise WayfareError("too late: the server no longer waits for this reply") from None
    try:
        yield
    finally:
        mark.unlink(missing_ok=True)


@contextmanager
def _ended_after(seconds: float) -> Iterator[None]:
    """End the process some time after a deadline, even if it hangs in foreign code: Ray or Flower start another."""
    if math.isfinite(seconds):
        faulthandler.dump_traceback_later(max(seconds, 0.0) + _GRACE, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


def _about(experiment: str, photos: str, name: str) -> Bundle:
    """What a node tells about itself when a federation gathers."""
    from wayfare.core.bundle import Bundle
    from wayfare.deploy.local_folder import digest_of, own
    from wayfare.experiment import Experiment

    task = own(Experiment.from_toml(experiment), photos).task
    return Bundle({}, {"name": name, "samples": int(task.samples), "classes": digest_of(task)})


@lru_cache(maxsize=1)
def _bench(experiment: str, folder: str, photos: str, name: str) -> Bench:
    """The experiment's bench, from its text; on somebody's own photographs, if there are such."""
    import torch

    from wayfare.experiment import Experiment

    if home := os.environ.get("WAYFARE_NODE_HOME"):
        os.environ["HOME"] = home  # Ray was started with another one
    torch.set_num_threads(1)
    made = Experiment.from_toml(experiment)
    if photos:
        from wayfare.deploy.local_folder import checked, own

        made = checked(own(made, photos), name)
    return made.bench(Path(folder))
