"""Federations on the loopback address for measurements: pictures, keys, nodes, a server, a relay that counts bytes."""

import contextlib
import socket
import threading

import numpy as np
from PIL import Image

from wayfare.core.seeds import rng_for
from wayfare.deploy.invite import invite
from wayfare.deploy.node import Node
from wayfare.deploy.server import serve
from wayfare.deploy.supernode import free_port
from wayfare.io.address import Address

CLASSES = ("cat", "dog", "owl")


def photograph(folder, count=24, side=32):
    """Some coloured noise in the layout of a folder of classes."""
    for label, kind in enumerate(CLASSES):
        for k in range(count):
            noise = rng_for("pictures", folder.name, kind, k).integers(0, 120, (side, side, 3))
            noise[..., label] += 120
            place = folder / ("test" if k < 2 else "train") / kind
            place.mkdir(parents=True, exist_ok=True)
            Image.fromarray(noise.astype(np.uint8)).save(place / f"{k:03}.png")


class Relay:
    """Between nodes and their server; counts what passes. Up is from nodes to the server."""

    def __init__(self, target):
        self.target, self.up, self.down = target, 0, 0
        self._lock, self._listener = threading.Lock(), socket.create_server((target.host, 0))
        self.address = Address(target.host, self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with contextlib.suppress(OSError):  # it was closed
            while True:
                near = self._listener.accept()[0]
                try:
                    far = socket.create_connection((self.target.host, self.target.port))
                except OSError:  # the server is not there yet
                    near.close()
                    continue
                for source, drain, way in ((near, far, "up"), (far, near, "down")):
                    threading.Thread(target=self._pass_on, args=(source, drain, way), daemon=True).start()

    def _pass_on(self, source, drain, way):
        with contextlib.suppress(OSError):
            while data := source.recv(2**16):
                drain.sendall(data)
                with self._lock:
                    setattr(self, way, getattr(self, way) + len(data))
        for end in (source, drain):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self):
        self._listener.close()


def played(experiment, folder, photos, hear=lambda event, data: None, warm=True, relayed=False):
    """Run an experiment with nodes, name -> their folder, over TLS and keys; returns the summary.

    What happens is told to `hear`, with the relay, if there is one, as "relay" among the data.
    """
    address = Address("127.0.0.1", free_port())
    invites = {name: invite(folder / "keys", name, address, 1, folder / f"{name}.invite") for name in photos}
    relay = Relay(address) if relayed else None
    with contextlib.ExitStack() as stack:

        def begin():
            for name, place in photos.items():
                home = folder / "homes" / name
                way = relay.address if relay else None
                node = Node(
                    invites[name], place, home, "off", server=way, warm=warm
                )  # what it notes is outside its home
                stack.enter_context(stack.enter_context(node.running())())

        def heard(event, data):
            if event == "listening":
                begin()
            hear(event, {**data, "relay": relay})

        try:
            return serve(
                experiment,
                folder / "run",
                listen=address,
                certificates=folder / "keys",
                nodes=0,
                wait=300,
                notify=heard,
            )
        finally:
            if relay:
                relay.close()
