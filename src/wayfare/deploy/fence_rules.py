"""What a node may ask a SuperLink for: exactly these routes, as itself, about what was sent to it, in bounded amounts.

Flower checks that a request is signed by the key of the node that it names. It does not check that a reply comes from
the node that it claims, that an object was sent to whoever pulls it, or how much is sent. That is done here.
"""

from __future__ import annotations

import base64
import binascii
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

_SMALL = 2**16  # bytes of a request that only names something
_TREE = 2**23  # bytes of the names of all parts of a reply
_PART = 6 * 2**20  # bytes of one part: Flower cuts arrays into parts of 5 MiB
_REMEMBERED = 32  # messages whose parts a node may still pull
_FREE, _TIMES = 2**26, 4  # a reply may have so many bytes, and so many times those of its message
KEY_HEADER = "flwr-public-key"
LARGE = _SMALL  # above this a request counts as large

ROUTES = {
    "activate-node": _SMALL, "deactivate-node": _SMALL, "send-node-heartbeat": _SMALL, "pull-messages": _SMALL,
    "push-messages": _TREE, "get-run": _SMALL, "get-fab": _SMALL, "push-object": _PART, "pull-object": _SMALL,
    "confirm-message-received": _SMALL,
}  # fmt: skip
PREFIX = "/v1/fleet/"


class FenceRefusal(Exception):
    """Why a request does not pass, and with which status."""

    def __init__(self, reason: str, status: int = 403) -> None:
        super().__init__(reason)
        self.reason, self.status = reason, status


def route_of(method: str, target: str) -> str:
    """The route of a request, if it is one that passes."""
    route = target.removeprefix(PREFIX)
    if not target.startswith(PREFIX) or route not in ROUTES:
        raise FenceRefusal(f"{method} {target[:80]!a} is not for nodes", 404)
    if method != "POST":
        raise FenceRefusal(f"{method} {target[:80]!a} is not a POST", 405)
    return route


@dataclass
class Conduct:
    """What one node has been sent, and has sent."""

    public_key: bytes  # as Flower writes it
    parts: OrderedDict[str, set[str]] = field(default_factory=OrderedDict)  # of each message, by its id
    expected: set[str] = field(default_factory=set)  # parts of its reply that the SuperLink waits for
    received: int = 0  # bytes since the last reply
    left: int = 0  # bytes that its reply may still have

    def check(self, route: str, key_header: str, body: bytes) -> None:
        """Refuse what this node may not ask."""
        try:
            signed_as = base64.b64decode(key_header, validate=True)
        except (binascii.Error, ValueError) as error:
            raise FenceRefusal("a key that cannot be read") from error
        if signed_as != self.public_key:
            raise FenceRefusal("signed with a key that is not that of its certificate")
        request = _parsed(_requests()[route], body)
        if route == "activate-node" and request.public_key != self.public_key:
            raise FenceRefusal("another node's key")
        if route == "push-messages":
            _check_reply(request)
        elif route == "pull-object" and not self._was_sent(request.object_id):
            raise FenceRefusal("an object that was not sent to it")
        elif route == "confirm-message-received" and request.message_object_id not in self.parts:
            raise FenceRefusal("a message that was not sent to it")
        elif route == "push-object":
            self._check_part(request)

    def _was_sent(self, part: str) -> bool:
        return any(part in parts for parts in self.parts.values())

    def _check_part(self, request: Any) -> None:
        if request.object_id not in self.expected:
            raise FenceRefusal("an object that is no part of its reply")
        self.left -= len(request.object_content)
        if self.left < 0:
            raise FenceRefusal(f"its reply has more than {_TIMES} times the bytes of its message and {_FREE:,}", 413)

    def note(self, route: str, body: bytes) -> None:
        """Remember what the SuperLink has answered."""
        from flwr.proto import fleet_pb2 as fleet

        if route == "pull-messages":
            response = _parsed(fleet.PullMessagesResponse, body)
            for message, tree in zip(response.messages_list, response.message_object_trees):
                self.parts[message.metadata.message_id] = _parts_of(tree)
            while len(self.parts) > _REMEMBERED:
                self.parts.popitem(last=False)
        elif route == "pull-object":
            self.received += len(body)
        elif route == "push-messages":
            self.expected = set(_parsed(fleet.PushMessagesResponse, body).objects_to_push)
            self.left, self.received = _FREE + _TIMES * self.received, 0


def _check_reply(request: Any) -> None:
    if len(request.messages_list) != 1 or len(request.message_object_trees) != 1:
        raise FenceRefusal("not exactly one reply")
    if request.messages_list[0].metadata.src_node_id != request.node.node_id:
        raise FenceRefusal("a reply in the name of another node")


def _parts_of(tree: Any) -> set[str]:
    """The ids in a tree of objects."""
    found, left = set[str](), [tree]
    while left:
        one = left.pop()
        found.add(one.object_id)
        left.extend(one.children)
    return found


def _parsed(kind: Any, body: bytes) -> Any:
    from google.protobuf.message import DecodeError

    try:
        return kind.FromString(body)
    except DecodeError as error:
        raise FenceRefusal("not a message of Flower", 400) from error


def _requests() -> dict[str, Any]:
    from flwr.proto import fab_pb2, fleet_pb2, heartbeat_pb2, message_pb2, run_pb2

    return {
        "activate-node": fleet_pb2.ActivateNodeRequest, "deactivate-node": fleet_pb2.DeactivateNodeRequest,
        "send-node-heartbeat": heartbeat_pb2.SendNodeHeartbeatRequest, "pull-messages": fleet_pb2.PullMessagesRequest,
        "push-messages": fleet_pb2.PushMessagesRequest, "get-run": run_pb2.GetRunRequest,
        "get-fab": fab_pb2.GetFabRequest, "push-object": message_pb2.PushObjectRequest,
        "pull-object": message_pb2.PullObjectRequest,
        "confirm-message-received": message_pb2.ConfirmMessageReceivedRequest,
    }  # fmt: skip
