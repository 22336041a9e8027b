"""The link to nodes of a real federation: Flower's SuperNodes, each of which is one device with its own folder.

They are on other machines: no common clock, no common disk, and what one of them sends is trusted by nobody.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from wayfare.core.errors import StoreError
from wayfare.core.protocols import Failure
from wayfare.engines.flower import records

HELLO = "hello"  # beside the programs: who are you, and how many samples have you?
_HELLO = 600.0  # seconds that a node may take to read its folder for the first time
_NAP = 0.5


@dataclass(frozen=True)
class NodeInfo:
    """What a node says about itself."""

    name: str
    samples: int
    classes: str  # a digest of the names of its classes, in order


class Deployment:
    """Devices by id, each on its node. A node that was started anew is found again by its name."""

    nap = _NAP
    ours = False

    def __init__(self, grid: Any, experiment: str, run: str, nodes: Mapping[str, int], ids: Mapping[str, str]) -> None:
        self.grid, self.place, self.workers = grid, run, len(nodes)
        self._experiment = experiment
        self._nodes_by_name = dict(nodes)  # node numbers by name
        self._names = {id: name for name, id in ids.items()}
        self._known = set(nodes.values())

    def node_of(self, device: str) -> int:
        """The number of the node that runs this device."""
        return self._nodes_by_name[self._names[device]]

    def check(self) -> None:
        """Nothing to see from here: a SuperLink that is gone shows in the next call to it."""

    def begin(self) -> str:
        """Before each call, see whether nodes have come back under other numbers."""
        new = set(self.grid.get_node_ids()) - self._known
        for node, info in query_nodes(self.grid, sorted(new), self._experiment).items():
            self._known.add(node)
            if isinstance(info, NodeInfo) and info.name in self._nodes_by_name:  # its key's name, where nodes have keys
                self._nodes_by_name[info.name] = node
        return ""

    def end(self, sign_in: str) -> None:
        """Nothing can be stopped from here: a node stops by itself at the deadline."""

    def close(self) -> None:
        """The nodes stay: they wait for the next run."""


def query_nodes(
    grid: Any, nodes: Iterable[int], experiment: str, seconds: float = _HELLO
) -> dict[int, NodeInfo | Failure]:
    """Ask nodes who they are. One that gives no answer in time is not among the results.

    Where nodes have keys, each key was registered under a name, and its owner cannot take another.
    """
    from flwr.app import ConfigRecord, Message, RecordDict

    nodes = list(nodes)
    if not nodes:
        return {}
    registered = {int(node.node_id): str(node.name) for node in grid.get_nodes()}
    call: dict[str, Any] = {"program": HELLO, "experiment": experiment, "seconds": seconds, "until": 0.0, "sign_in": ""}
    messages = [
        Message(RecordDict({"call": ConfigRecord(dict(call))}), dst_node_id=node, message_type="query", ttl=seconds)
        for node in nodes
    ]
    asked = {str(id): node for id, node in zip(grid.push_messages(messages), nodes)}
    infos: dict[int, NodeInfo | Failure] = {}
    end = time.monotonic() + seconds
    while asked and time.monotonic() < end:
        replies = list(grid.pull_messages(list(asked)))
        for reply in replies:
            node = asked.pop(reply.metadata.reply_to_message_id, None)
            if node is not None and not reply.has_error():  # an error is Flower's: the node is away, and may come back
                infos[node] = _read_info(reply, registered.get(node, ""))
        if not replies:
            time.sleep(_NAP)
    return infos


def _read_info(reply: Any, registered: str) -> NodeInfo | Failure:
    outcome = reply.content.get("outcome", {})
    for key in ("failed", "stopped"):
        if key in outcome:
            return Failure(str(outcome[key]))
    try:
        bundle = records.read(reply.content)
        name, samples, classes = (bundle.values[key] for key in ("name", "samples", "classes"))
    except (StoreError, KeyError) as error:
        return Failure(f"malformed: {error}")
    if not isinstance(name, str) or not isinstance(classes, str) or isinstance(samples, bool):
        return Failure("malformed: it does not say who it is")
    if not isinstance(samples, int) or samples < 1:
        return Failure(f"it has {samples} samples")
    if registered and registered != name:
        return Failure(f"it calls itself {name!r}, but its key is that of {registered!r}")
    return NodeInfo(name, samples, classes)
