"""The link to nodes of a real federation: Flower's SuperNodes, each of which is one device with its own folder.

They are on other machines: no common clock, no common disk, and what one of them sends is trusted by nobody.
Flower is imported in functions: it is optional.
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
_PATIENCE = 10.0  # seconds that a round waits for the answer of a node that has just come
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
        self._greetings = Greetings(grid, experiment)
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
        new = set(self.grid.get_node_ids()) - self._known - self._greetings.waiting
        self._greetings.ask(sorted(new))
        end = time.monotonic() + _PATIENCE
        while self._greetings.waiting:
            for node, info in self._greetings.answers().items():
                self._known.add(node)
                if isinstance(info, NodeInfo) and info.name in self._nodes_by_name:  # the name of its key
                    self._nodes_by_name[info.name] = node
            if not self._greetings.waiting or time.monotonic() > end:
                break
            time.sleep(_NAP)
        return ""

    def end(self, sign_in: str) -> None:
        """Nothing can be stopped from here: a node stops by itself at the deadline."""

    def close(self) -> None:
        """The nodes stay: they wait for the next run."""


class Greetings:
    """Asks nodes who they are. A node that does not answer keeps nobody waiting: its answer may come later.

    Each key was registered under a name, and its owner cannot take another.
    """

    def __init__(self, grid: Any, experiment: str) -> None:
        self._grid, self._experiment = grid, experiment
        self._asked: dict[str, int] = {}  # nodes by message

    def ask(self, nodes: Iterable[int], seconds: float = _HELLO) -> None:
        """Ask these; they may answer for so long."""
        from flwr.app import ConfigRecord, Message, RecordDict

        nodes = list(nodes)
        if not nodes:
            return
        call: dict[str, Any] = {
            "program": HELLO, "experiment": self._experiment, "seconds": seconds, "until": 0.0, "sign_in": "",
        }  # fmt: skip
        messages = [
            Message(RecordDict({"call": ConfigRecord(dict(call))}), dst_node_id=node, message_type="query", ttl=seconds)
            for node in nodes
        ]
        self._asked |= {str(id): node for id, node in zip(self._grid.push_messages(messages), nodes) if id}

    def answers(self) -> dict[int, NodeInfo | Failure]:
        """What has come. A node that Flower lost meanwhile is not among it, and may be asked again."""
        if not self._asked:
            return {}
        registered = {int(node.node_id): str(node.name) for node in self._grid.get_nodes()}
        infos: dict[int, NodeInfo | Failure] = {}
        while self._asked and (replies := list(self._grid.pull_messages(list(self._asked)))):
            for reply in replies:
                node = self._asked.pop(reply.metadata.reply_to_message_id, None)
                if node is not None and not reply.has_error():
                    infos[node] = _read_info(reply, registered.get(node, ""))
        return infos

    @property
    def waiting(self) -> set[int]:
        """Nodes that were asked and have not answered."""
        return set(self._asked.values())


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
