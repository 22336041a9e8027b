"""What leaves a device under an experiment: names, shapes, bytes, and what somebody could learn from them.

Nothing is asserted from a list of what strategies are thought to send. One device of the experiment does one short
round, here, and what it would have sent is written down.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from wayfare.core.bundle import Bundle, Value
from wayfare.core.counting import SECTION
from wayfare.core.device import Bench
from wayfare.core.errors import ConfigError, DeviceError
from wayfare.core.protocols import Failure
from wayfare.engines.programs import perform
from wayfare.experiment import Experiment
from wayfare.pages.tables import human_bytes, plain

_SHOWN = 12  # tensors of a message that the terminal lists; JSON has all
_TRIED = 3  # devices that may turn out to have nothing to train on

_MODEL = (
    "The weights after training here. Minus those it received, they are a sum of gradients over this device's own"
    " samples: whoever sees them can guess which classes the device has and whether a given sample was among them, and"
    " can roughly reconstruct pictures if there were few samples and steps."
)
_LIKENESS = (
    "One mean feature vector per class: what this device's samples of a class look like to the network on average;"
    " with one sample in a class, that sample's own features, from which a likeness can be rebuilt."
)
_SECTIONS = {
    "model": _MODEL,
    "control": "A mean of this device's gradients over its steps. It reveals what the weights reveal.",
    "prototypes": _LIKENESS,
    "counts": "How many samples of each class this device has, exactly.",
}
_PACKED = "The change of these weights, packed: it reveals what the weights reveal, a little less exactly."
_PARTS = {  # of a model, by a part of a weight's name
    "memory": _LIKENESS,
    "class_codes": "A code for each class. Those of classes that this device has no sample of are as they came, so it"
    " shows which classes it has.",
    "whitening": "What this device's photographs look like to the network on average, and how they differ, mixed one to"
    " nine with what it received. With few photographs, it is close to what these look like.",
}
_OTHER_SECTION = (
    "Computed from this device's samples by a strategy that does not say what it is: assume that it reveals them."
)
_VALUES = {
    "n": "how many samples the device trained or evaluated on",
    "steps": "how many training steps it made; with n, this shows how fast it is and how it is configured",
    "loss": "how well the model fits its samples: a low loss means that they are common, or memorised",
    "classes": "how many classes its samples have",
    "guided": "how many of its pairs went through the model that it received",
    "round": "the round it answers: nothing about the device",
    "cold": "whether it had no memory of earlier rounds: a new device, or one that was reset",
    "kept": "whether it remembers something for the next round",
}
_METRIC = "how good the model is on samples that the device holds out: how difficult its data are"
_OTHER_VALUE = "a figure that the strategy adds: see its documentation"
_STAYS = (
    "photographs, texts, what each of them shows, the names and places of files",
    "what the device remembers between rounds",
)


def explain(experiment: Experiment) -> dict[str, Any]:
    """What leaves a device, from one device's short round."""
    pooled, messages = experiment.strategy.pooled, []
    if not pooled:
        with tempfile.TemporaryDirectory() as folder:
            messages = _messages(experiment, experiment.bench(Path(folder)))
    return {
        "strategy": type(experiment.strategy).__name__.lower(),
        "topology": type(experiment.topology).__name__.lower(),
        "pooled": pooled,
        "messages": messages,
        "stays": [] if pooled else list(_STAYS),
        "caution": _caution(experiment),
    }


def _messages(experiment: Experiment, bench: Bench) -> list[dict[str, Any]]:
    """Every kind of message that a device sends, with what is in it."""
    strategy, settings = experiment.strategy, experiment.evaluation
    state = strategy.start(experiment.task, bench.loaded(0, bench.initial))
    state = Bundle(state.tensors, {**state.values, "population": len(bench.population)})
    device, reply = _rehearsed(bench, state)
    if experiment.topology.meets:
        given = strategy.report(state, int(reply.number("n")))
        return [_described("to a device that it meets", "each time one takes its model", given)]
    found = []
    if experiment.task.counted and not strategy.personal:
        counts = _done(bench, "count", device, Bundle())
        found.append(_described("to the server", "once, before the first round", counts))
        found[0]["reveals"][SECTION] = experiment.task.about_counts
    found.append(_described("to the server", "each round in which it takes part", reply))
    if settings.every and settings.clients and settings.holdout > 0:
        judged = _done(bench, "evaluate", device, strategy.send(state, device), split="holdout")
        found.append(_described("to the server", "each time it evaluates the model", judged))
    return found


def _rehearsed(bench: Bench, state: Bundle) -> tuple[str, Bundle]:
    """One step of training on a device of middle size; on a larger one if that has nothing to train on."""
    sizes = bench.population.sizes
    order = sorted(range(len(sizes)), key=lambda i: (int(sizes[i]), i))[len(sizes) // 2 :]
    reasons = []
    for i in dict.fromkeys([*order[: _TRIED - 1], order[-1]]):
        device = bench.population.id(i)
        try:
            return device, _done(bench, "train", device, bench.strategy.send(state, device), iterations=1)
        except DeviceError as error:
            reasons.append(str(error))
    raise ConfigError(
        f"what leaves a device cannot be shown, because no device that was tried could train: {reasons[-1]}"
    )


def _done(bench: Bench, program: str, device: str, told: Bundle, **more: Value) -> Bundle:
    """The device's reply in round 1."""
    reply = perform(bench, program, device, Bundle(told.tensors, {**told.values, "round": 1, **more}))
    if isinstance(reply, Failure):
        raise DeviceError(device, program, reply.reason, reply.detail)
    return reply


def _described(to: str, when: str, message: Bundle) -> dict[str, Any]:
    tensors = [
        {
            "section": section,
            "name": name,
            "shape": list(tensor.shape),
            "type": str(tensor.dtype).removeprefix("torch."),
            "bytes": tensor.nbytes,
        }
        for section, weights in message.tensors.items()
        for name, tensor in weights.items()
    ]
    reveals = {
        section: _PACKED if "~" in section else _SECTIONS.get(section, _OTHER_SECTION) for section in message.tensors
    }
    named = {part for name in message.tensors.get("model", ()) for part in name.split(".")}
    reveals |= {f"model/{part}": what for part, what in _PARTS.items() if part in named}
    return {
        "to": to,
        "when": when,
        "bytes": message.nbytes,
        "tensors": tensors,
        "values": {name: _about(name) for name in sorted(message.values)},
        "reveals": reveals,
    }


def _about(name: str) -> str:
    return _METRIC if name.startswith("metric/") else _VALUES.get(name, _OTHER_VALUE)


def _caution(experiment: Experiment) -> list[str]:
    if experiment.strategy.pooled:
        return ["This strategy collects all samples in one place first: everything leaves the device."]
    notes = ["Whoever receives a message also knows who sent it, and when."]
    if experiment.topology.meets:
        notes.append(
            "Devices that meet also announce themselves: how good their model is, and whether it is the same. "
            "In a simulation the machine that runs it sees everything."
        )
    else:
        notes.append("The server sees each device's message by itself: messages are not summed or obscured on the way.")
    return notes


def traffic_page(found: dict[str, Any]) -> RenderableType:
    """The same for a terminal."""
    parts: list[RenderableType] = [Text(f"{found['strategy']} on the topology {found['topology']}", style="bold")]
    for message in found["messages"]:
        parts += ["", Text(f"{message['to']}, {message['when']}: {human_bytes(message['bytes'])}", style="bold")]
        if message["tensors"]:
            parts.append(_tensor_table(message["tensors"]))
        parts += [Text(f"  {section}: {what}") for section, what in message["reveals"].items()]
        parts += [Text(f"  {plain(name)}: {what}") for name, what in message["values"].items()]
    if found["stays"]:
        parts += ["", Text("stays on the device: " + "; ".join(found["stays"]))]
    return Group(*parts, "", *map(Text, found["caution"]))


def _tensor_table(tensors: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=True)
    for head in ("section", "tensor", "shape", "type", "bytes"):
        table.add_column(head, justify="right" if head == "bytes" else "left")
    for row in tensors[:_SHOWN]:
        shape = " x ".join(map(str, row["shape"])) or "one number"
        table.add_row(row["section"], plain(row["name"], 60), shape, row["type"], f"{row['bytes']:,}")
    if rest := tensors[_SHOWN:]:
        table.add_row("", f"and {len(rest)} more", "", "", f"{sum(row['bytes'] for row in rest):,}")
    return table
