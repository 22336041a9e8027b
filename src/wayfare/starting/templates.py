"""Commented recipes, one for each thing that can be learnt, with settings that fit the data at hand."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from wayfare.attributes.data import celeba
from wayfare.core.errors import ConfigError, DataError, WayfareError
from wayfare.core.protocols import Population
from wayfare.experiment import Experiment
from wayfare.nets.published import PUBLISHED
from wayfare.partition.column import FOLDER
from wayfare.recipe import toml
from wayfare.starting.inspect import Inspected, data_settings, mostly_upright

_CLIENTS = 10
_READER = "wordllama"  # of texts that share no words
BETTER = "dinov2-s"  # sees more in photos: to be fetched with `wayfare data get`
_LANGUAGE = "minilm"  # reads any word: the same
_LOOKED_AT = 100  # clients, of which one must be able to train
_SEQUENCES = 8  # of which half ask, and of these a quarter is tested on


@dataclass(frozen=True)
class Choices:
    """What the user says; nothing: what is usual."""

    task: str = ""
    by: str = ""  # a column, "folder", "place" or "random"
    clients: int = 0
    rounds: int = 0
    pictures: Path | None = None  # for traces: what devices hold


@dataclass(frozen=True)
class Entry:
    """A line of a recipe, and why it is there."""

    key: str
    value: Any
    why: str = ""


Recipe = dict[str, list[Entry]]  # settings by table; "" is the top


def recipes(inspected: Inspected, choices: Choices) -> Iterator[Recipe]:
    """Recipes for the data, the best first; the next is for data that does not fit the one before."""
    task = inspected.task(choices.task)
    makers = {
        "objects": _objects,
        "places": _places,
        "hashing": _hashing,
        "scenes": _scenes,
        "attributes": _attributes,
        "tour": _tour,
    }
    return makers[task](inspected, choices)


def first_that_fits(inspected: Inspected, choices: Choices, name: str) -> tuple[str, Experiment]:
    """The text of the first recipe whose data, partition and topology fit each other, and its experiment."""
    failures: list[WayfareError] = []
    for recipe in recipes(inspected, choices):
        text = written(recipe, name, inspected)
        try:
            experiment = Experiment.from_toml(text)
            split = experiment.split()
            if len(split) < 2:
                raise ConfigError("only one client would take part: training together needs two or more")
            experiment.topology.check(len(experiment.clients(split).population))
            experiment.task.network()  # refuses what it cannot learn from
            _check_trainable(experiment, split)
            return text, experiment
        except WayfareError as error:
            failures.append(error)
    raise failures[-1]  # of the recipe that asks for the least


def hints(task: str) -> list[str]:
    """What would make it better, and is not here."""
    if task == "hashing" and not _encoders_are_here():
        fetch = " and ".join(f"`wayfare data get {name}`" for name in (BETTER, _LANGUAGE))
        return [
            f"Better, and any word can be read, at several times the computing: {fetch}, then init again with --force."
        ]
    weights = PUBLISHED[BETTER]
    if task == "places" and not weights.path.is_file():
        size = f"{weights.package_bytes / 1e6:.0f} MB"
        return [
            f"Better, at several times the computing: `wayfare data get {BETTER}` ({size}), then init again with "
            "--force. It tells real places apart far better, even without training."
        ]
    return []


def _check_trainable(experiment: Experiment, split: Population) -> None:
    """Whether some of the clients can train: of photos of places, none may have another of the same place."""
    clients = experiment.clients(split)
    reasons = []
    for place in range(min(len(split), _LOOKED_AT)):
        reasons.append(experiment.task.cannot_train(clients.client(split.id(place)).train))
        if not reasons[-1]:
            return
    raise ConfigError(f"no client can train: {reasons[0]}")


def written(recipe: Recipe, name: str, inspected: Inspected) -> str:
    """The recipe as commented TOML."""
    lines = [
        f"# Made by `wayfare init {inspected.path}`. Every line may be changed;",
        "# docs/reference-toml.md lists all settings. Run it: wayfare run THIS-FILE",
        f"name = {toml(name)}",
    ]
    for table, settings in recipe.items():
        if table:
            lines += ["", f"[{table}]"]
        lines += [f"{each.key} = {toml(each.value)}" + (f"  # {each.why}" if each.why else "") for each in settings]
    return "\n".join(lines) + "\n"


def _data(inspected: Inspected, *more: Entry) -> list[Entry]:
    return [*(Entry(key, value) for key, value in data_settings(inspected).items()), *more]


# ---- who has what


def _by_owner(inspected: Inspected, choices: Choices) -> list[Entry] | None:
    by = choices.by
    if not by and not choices.clients and inspected.owners:
        by = next(iter(inspected.owners))
    if by in ("", "place", "random"):
        return None
    if by not in inspected.owners and by != FOLDER:
        known = ", ".join([*inspected.owners, "random"]) or "none"
        raise ConfigError(f"--by {by!r}: no such rule, column or folder in {inspected.path}. Known: {known}")
    why = "a folder for each person" if by == FOLDER else "of the table: each value is a client"
    return [
        Entry("name", "column"),
        Entry("column", by, why),
        Entry("least", 2, "owners with fewer take no part"),
    ]


def _clients(choices: Choices, samples: int) -> int:
    return choices.clients or max(2, min(_CLIENTS, samples // 8))


def _server(rounds: int, choices: Choices) -> dict[str, list[Entry]]:
    return {
        "": [Entry("rounds", choices.rounds or rounds)],
        "strategy": [Entry("name", "fedavg", "`wayfare list strategies` shows others")],
        "topology": [Entry("name", "server"), Entry("per_round", 0, "clients asked in each round; 0: all")],
    }


# ---- what is learnt


def _objects(inspected: Inspected, choices: Choices) -> Iterator[Recipe]:
    # The rate and the epochs were chosen on the town's sights (987 pictures, ten clients, 20 rounds, one seed): rates
    # of 3e-4, 1e-3, 3e-3 with 1, 2, 5 epochs gave 68.5 to 72.9 %, and these the most.
    count = int(inspected.findings.counts.get("pictures", 0) or inspected.findings.counts.get("photos", 0))
    data = _data(inspected)
    if inspected.found.layout == "photos":
        data[0] = Entry("name", "folder")
    partition = _by_owner(inspected, choices) or [
        Entry("name", "dirichlet", "photos are divided unevenly: the data does not say whose they are"),
        Entry("clients", _clients(choices, count)),
        Entry("alpha", 0.5, "smaller: clients have fewer classes in common"),
    ]
    yield {
        **_server(20, choices),
        "data": data,
        "model": [
            Entry("name", "efficientnet_lite0_head", "a linear layer on a network pretrained on ImageNet"),
            Entry("image_size", 160, "pixels; larger is better and slower"),
        ],
        "task": [Entry("name", "objects")],
        "partition": partition,
        "training": [
            Entry("epochs", 2), Entry("batch_size", 16), Entry("optimizer", "adam"), Entry("lr", 1e-3),
        ],
        "evaluation": [Entry("every", 5), Entry("holdout", 0.0, "the test photos are used")],
    }  # fmt: skip


_WIDE = {"name": "places", "radius": 30.0, "negative_radius": 60.0}  # where photos are far from each other


def _places(inspected: Inspected, choices: Choices) -> Iterator[Recipe]:
    counts = inspected.findings.counts
    samples = int(counts.get("photos", 0))
    extent = max(float(counts.get(side, 0)) for side in ("width, m", "height, m"))
    has_sequences = int(counts.get("sequences", 0)) >= _SEQUENCES
    near = float(max(10, min(25, round(extent / 25))))
    strip = {"name": "strips", "strip": max(near, float(round(extent / 12)))}
    strips = Entry("test", strip, "every fourth strip of ground is for testing")
    describer = _describer()
    sides = [Entry(name, side) for name, side in zip(("height", "width"), describer.sides)]
    if mostly_upright(inspected.path):
        sides = [
            Entry("height", describer.sides[1], "most of the photos are upright"),
            Entry("width", describer.sides[0]),
        ]
    tests = [Entry("test", "sequences", "whole walks or drives are for testing"), strips]
    if "queries" in counts and inspected.found.layout == "msls":
        tests = [Entry("test", "layout"), *tests]
    options = [(test, wide) for wide in (False, True) for test in (tests if has_sequences else tests[-1:])]
    for test, wide in options:
        asks = Entry("queries", "layout" if "queries" in counts else "half", "which are queries, which the database")
        for partition in _areas(inspected, choices, samples, extent):
            yield {
                **_server(describer.rounds, choices),
                "data": _data(inspected, *sides, asks, test),
                "model": describer.model,
                "task": [
                    Entry("name", "places"), Entry("mining", _WIDE if wide else "places"), Entry("loss", "infonce"),
                    Entry("radius", near, "metres up to which an answer is right"),
                ],
                "partition": partition,
                "training": describer.training,
                "evaluation": [Entry("every", 8), Entry("holdout", 0.0)],
            }  # fmt: skip


class _Describer(NamedTuple):
    """A network that describes photos, and how it is trained."""

    model: list[Entry]
    training: list[Entry]
    rounds: int
    sides: tuple[int, int]  # of pictures as it sees them, the shorter one first


def _describer() -> _Describer:
    """DINOv2 if its weights have been fetched: it tells real places apart far better (docs/experiments.md)."""
    adam, pairs = Entry("optimizer", "adam"), "places, with two views of each"
    if PUBLISHED[BETTER].path.is_file():
        model = [
            Entry("backbone", BETTER), Entry("pooling", "vlad", "16 clusters of local features"), Entry("whiten", 0.5),
            Entry("adapters", 8, "low-rank adapters are all that is trained"), Entry("adapter_stages", 1),
        ]  # fmt: skip
        training = [Entry("iterations", 4), Entry("batch_size", 16, pairs), adam, Entry("lr", 1e-3)]
        return _Describer(model, training, rounds=10, sides=(168, 224))
    model = [
        Entry("backbone", "efficientnet_lite0_stage5", f"better and slower: {BETTER}; fetch it, and run init again"),
        Entry("pooling", "grid"), Entry("whiten", 0.5), Entry("statistics", "stored"),
    ]  # fmt: skip
    training = [Entry("iterations", 4), Entry("batch_size", 32, pairs), adam, Entry("lr", 5e-4)]
    return _Describer(model, training, rounds=16, sides=(160, 224))


def _areas(inspected: Inspected, choices: Choices, samples: int, extent: float) -> Iterator[list[Entry]]:
    """Owners, or neighbourhoods of a size that makes several of them, or photos dealt out at random."""
    if owned := _by_owner(inspected, choices):
        yield owned
    if choices.by != "random" and not choices.clients:
        for part in (4, 8):
            radius = float(max(10, round(extent / part)))
            yield [Entry("name", "proximity"), Entry("radius", radius, "metres: a client is a neighbourhood"),
                   Entry("least", 2)]  # fmt: skip
    yield [Entry("name", "random"), Entry("clients", min(_clients(choices, samples), max(2, samples // 10)))]


def _encoders_are_here() -> bool:
    """Whether DINOv2 and MiniLM have been fetched."""
    return all(PUBLISHED[name].path.is_file() for name in (BETTER, _LANGUAGE))


def _hashing(inspected: Inspected, choices: Choices) -> Iterator[Recipe]:
    # The same settings as recipes/search.toml: a contrastive loss with the texts of photos, and linear heads, which are
    # an eighth of the traffic. On 1,500 fashion products, ten clients, one seed, 12 rounds with hidden layers, R@10 of
    # its test queries, by which it was chosen, was 84 %, with DCMH 14 %.
    count = int(inspected.findings.counts.get("pairs", 0))
    image = Entry(
        "image", {"name": "frozen", "side": 128, "hidden": 0, "colours": True}, f"better and slower: {BETTER}; fetch it"
    )
    texts = [
        Entry("text", {"name": "bag", "hidden": 0}, f"knows the words of the texts; {_LANGUAGE} reads any; fetch it")
    ]
    if PUBLISHED[_READER].path.is_file():  # for texts that share no words, of which a bag of words learns nothing
        texts.append(Entry("text", {"name": _READER}, "a sentence encoder, because the texts share no words"))
    if _encoders_are_here():
        image = Entry(
            "image", {"name": BETTER, "colours": True}, "sees more in photos than EfficientNet, and is slower"
        )
        texts = [Entry("text", {"name": _LANGUAGE}, "a sentence encoder: any word can be read")]
    has_labels = bool(inspected.findings.counts.get("labels", 1))
    names = [Entry("label_texts", 0.5, "half of the texts are names of labels, as people type them")] * has_labels
    for text in texts:
        yield {
            **_server(20, choices),
            "data": _data(inspected),
            "model": [
                Entry("bits", 64),
                image,
                text,
            ],
            "task": [
                Entry("name", "hashing"), Entry("order", "alternate"),
                Entry("base", "contrastive", "a text and its own photo come near each other"),
                *names,
            ],
            "partition": _by_owner(inspected, choices)
            or [Entry("name", "random"), Entry("clients", _clients(choices, count))],
            "training": [
                Entry("epochs", 3), Entry("batch_size", 64), Entry("optimizer", "adam"), Entry("lr", 3e-3),
            ],
            "evaluation": [Entry("every", 5), Entry("holdout", 0.0)],
        }  # fmt: skip


def _scenes(inspected: Inspected, choices: Choices) -> Iterator[Recipe]:
    counts = inspected.findings.counts
    usable = int(counts.get("images", 0)) - int(counts.get("images without relations", 0))
    held_back = Entry("test", max(1, min(2000, usable // 5)), "images to test with: the file names none")
    yield {
        **_server(20, choices),
        "strategy": [Entry("name", "fedavgm", "averaging with momentum"), Entry("beta", 0.7)],
        "data": _data(inspected, *(() if counts.get("test images") else (held_back,))),
        "model": [
            Entry("name", "motifs", "imp, vctree and gpsnet are other heads"),
            Entry("frequency_bias", True, "begins with how often things are related, counted over the clients"),
        ],
        "task": [Entry("name", "scenes")],
        "partition": [Entry("name", "random"), Entry("clients", _clients(choices, usable))],
        "training": [
            Entry("epochs", 1), Entry("batch_size", 16), Entry("optimizer", "adam"), Entry("lr", 2e-3),
        ],
        "evaluation": [Entry("every", 5), Entry("holdout", 0.0)],
    }  # fmt: skip


def _attributes(inspected: Inspected, choices: Choices) -> Iterator[Recipe]:
    table = celeba.load(inspected.path)
    target = min(table.names, key=lambda name: (name != "Smiling", abs(float(table.column(name).mean()) - 0.5)))
    for model, why in (("cnn", "sees pictures"), ("table", "there are no pictures: it sees the other attributes")):
        yield {
            **_server(20, choices),
            "data": _data(inspected),
            "model": [Entry("name", model, why)],
            "task": [Entry("name", "attributes"), Entry("target", target, "the attribute to learn")],
            "partition": [Entry("name", "random"), Entry("clients", choices.clients or _CLIENTS)],
            "training": [Entry("batch_size", 32), Entry("optimizer", "adam"), Entry("lr", 1e-3)],
            "evaluation": [Entry("every", 5), Entry("holdout", 0.0)],
        }


# ---- devices that meet

_FORMS = "say what its lines are with --layout: meetings, intervals, connections, positions or walk"
_LONGEST = 1500  # slots of a run
_SLOTS = 10  # of a round


def _tour(inspected: Inspected, choices: Choices) -> Iterator[Recipe]:
    counts = inspected.findings.counts
    devices = int(counts.get("devices", 2)) - int(counts.get("stationary", 0))
    if devices < 2:
        raise DataError("a trace of one device, which meets nobody", inspected.path, remedy=_FORMS)
    hours = float(counts.get("hours", 1))
    slot = float(max(30, 30 * math.ceil(hours * 3600 / _LONGEST / 30)))
    slots = max(1, math.ceil(hours * 3600 / slot))
    data = [Entry("name", "digits", "what the devices hold; `wayfare init TRACES --pictures DIR` takes your own")]
    model = [Entry("name", "cnn"), Entry("width", 8), Entry("hidden", 32)]
    if choices.pictures is not None:
        data = [Entry("name", "folder"), Entry("path", str(choices.pictures.resolve()))]
        model = [Entry("name", "efficientnet_lite0_head"), Entry("image_size", 160)]
    for share, clients in ((200, choices.clients or min(devices, 60)), (26, choices.clients or min(devices, 20))):
        yield {
            "": [Entry("rounds", choices.rounds, "0: all slots of the traces")],
            "data": data,
            "model": model,
            "task": [Entry("name", "objects")],
            "partition": [
                Entry("name", "quantity", "most devices have little"), Entry("clients", clients),
                Entry("distribution", "pareto"), Entry("exponent", 1.0), Entry("min_size", 2),
            ],
            "strategy": [Entry("name", "fedavg"), Entry("weighting", "uniform")],
            "topology": [
                Entry("name", "encounters"), Entry("traces", str(inspected.path.resolve())),
                *([Entry("layout", inspected.found.form)] if inspected.found.form else []),
                Entry("radius", 50.0, "metres within which two devices can exchange models, if positions are known"),
                Entry("slot", slot, "seconds"),
                Entry("slots", _SLOTS, "slots between two checkpoints, which make a round"),
                Entry("probe", share, "pictures, the same for all, on which devices compare their models"),
                Entry("judge", 0, "others, for policies that predict: fedtour needs these and public pictures"),
            ],
            "exchange": [
                Entry("name", "budgeted", "needs no study beforehand; fedtour is the paper's"),
                Entry("limit", 40, "models that a device may send and receive in all"),
            ],
            "training": [
                Entry("epochs", 8), Entry("batch_size", 16), Entry("optimizer", "adam"), Entry("lr", 2e-3),
            ],
            "evaluation": [
                Entry("every", max(1, slots // 6 // _SLOTS), f"rounds of {_SLOTS} slots"), Entry("holdout", 0.0),
            ],
        }  # fmt: skip
