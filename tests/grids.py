"""Nodes of a federation that are calls of the app in this process, each with a folder of its own."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import device_folders


class Grid:
    """Flower's grid with nodes that are calls of the app, each with its own photographs."""

    def __init__(self, root: Path, names=device_folders.NAMES, state: Path | None = None):
        self.root, self.state = root, state or root / "state"
        self.names = dict(enumerate(names, start=7))  # by node number
        self.contexts, self.waiting, self.heard, self.keys = {}, {}, [], {}

    def get_node_ids(self):
        return list(self.names)

    def get_nodes(self):
        return [SimpleNamespace(node_id=node, name=self.keys.get(node, "")) for node in self.names]

    def push_messages(self, messages):
        for message in messages:
            message.metadata.__dict__["_message_id"] = f"{len(self.heard)}"
            self.heard.append(message)
            self.waiting[message.metadata.message_id] = message
        return [message.metadata.message_id for message in messages]

    def pull_messages(self, ids):
        from wayfare.deploy.client_app import app

        message = self.waiting.pop(next(reversed([id for id in ids if id in self.waiting])))
        node = message.metadata.dst_node_id
        reply = app(message, self.context(node))
        reply.metadata.__dict__["_src_node_id"] = node
        return [reply]

    def context(self, node):
        from flwr.app import Context, RecordDict

        name = self.names[node]
        settings = {"photos": str(self.root / name), "name": name, "home": str(self.state / name)}
        return self.contexts.setdefault(node, Context(1, node, settings, RecordDict(), {}))


def job(experiment, folder, nodes=3, **more):
    text = experiment.to_toml()
    return {"experiment": text, "folder": str(folder), "run": "r1", "nodes": nodes, "wait": 5, "rounds": 0, **more}


def said(events):
    return lambda event, data: events.append((event, data))
