"""Strangers, a registered node and another user of the machine try all that Flower serves: nobody gets anywhere.

There is one federation for all tests, as processes and over the loopback address. First it is attacked, while its
server waits for nodes; then three nodes join with their invitations, and its run must be the one of the local engine.
"""

import base64
import contextlib
import json
import os
import shutil
import socket
import ssl
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

import pytest

import device_folders

pytestmark = [
    pytest.mark.skipif(find_spec("flwr") is None, reason="Flower is not installed: wayfare[flower]"),
    pytest.mark.skipif(sys.platform != "linux", reason="it looks into /proc"),
    pytest.mark.timeout(400),
]
GIGABYTE = 10**9
ALLOWED = 64 * 2**20  # bytes that a process of the server may grow by under attack


@dataclass
class Scene:
    """A server that waits, and what attackers hold."""

    stage: object
    folder: Path
    server: object
    local: dict
    open: contextlib.ExitStack  # clients that are still connected

    @property
    def address(self):
        return self.stage.address

    @property
    def authority(self):
        return self.stage.folder / "keys/ca.crt"

    def pair(self, name):
        """The certificate and key of an invitation, as files."""
        from wayfare.deploy.invite import read_invite

        found = read_invite(self.stage.folder / f"{name}.invite")
        paths = [self.folder / f"{name}.{kind}" for kind in ("crt", "key")]
        for path, text in zip(paths, (found.certificate, found.key)):
            path.write_text(text)
        return paths

    def local_port(self):
        """Flower's port on the loopback address, and the file with its secret."""
        import federation

        commands = [Path(f"/proc/{one}/cmdline").read_bytes().split(b"\0") for one in federation.tree(self.server.pid)]
        command = next(one for one in commands if b"--runtime-api-address" in one and b"--token" not in one)
        port = int(command[command.index(b"--runtime-api-address") + 1].rpartition(b":")[2])
        return port, Path(command[command.index(b"--superexec-auth-secret-file") + 1].decode())

    def owner(self):
        """The server's owner, at the socket that only the owner can open."""
        import httpx

        transport = httpx.HTTPTransport(uds=str(self.local_port()[1].with_name("socket")))
        return httpx.Client(transport=transport, base_url="http://superlink", trust_env=False)

    def seen(self):
        from wayfare.deploy.fence_log import read_fence_log

        return read_fence_log(self.stage.folder / "peace/flower/fence.jsonl")

    def refused(self, reason):
        return [line for line in self.seen() if line["event"] == "refused" and reason in line["reason"]]

    def process(self, name):
        from wayfare.core.locks import holder

        return holder(self.stage.folder / f"peace/flower/{name}.lock")


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    import federation
    from failing_devices import Troubled
    from wayfare.deploy.invite import invite
    from wayfare.experiment import Evaluation
    from wayfare.runner import run

    folder = tmp_path_factory.mktemp("strangers")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WAYFARE_CACHE", str(folder / "cache"))
        patch.setenv("PYTHONPATH", os.pathsep.join([str(Path(federation.__file__).parent), *sys.path]))
        with federation.Stage(folder / "stage") as stage:
            invite(stage.folder / "keys", "dora", stage.address, 365, stage.folder / "dora.invite")
            plan = replace(
                device_folders.experiment(stage.homes, Troubled(), rounds=1),
                evaluation=Evaluation(every=0, holdout=0.2),
            )
            server = stage.serve(
                "peace", "--recipe", federation.recipe(plan, stage.folder / "peace.toml"), "--nodes", 3
            )
            local = run(replace(plan, partition=device_folders.dealt(stage.homes)), folder / "local", "local")
            federation.until("the server waits", lambda: "waiting for 3 nodes" in stage.said("peace"), 180)
            with contextlib.ExitStack() as clients:
                yield Scene(stage, folder, server, local, clients)


def callers(scene):
    """Those who knock, with what they can show."""
    import attackers

    own = attackers.self_signed(scene.folder / "own", "anna")
    other = [scene.folder / "other.crt", scene.folder / "other.key"]
    from wayfare.deploy.invite import read_invite

    found = read_invite(scene.stage.folder / "stranger.invite")  # of another federation, for the same name
    for path, text in zip(other, (found.certificate, found.key)):
        path.write_text(text)
    contexts = {
        "without TLS": None,
        "without a certificate": attackers.context(scene.authority),
        "with a certificate of its own": attackers.context(scene.authority, *own),
        "with one of another federation": attackers.context(scene.authority, *other),
        "a registered node": attackers.context(scene.authority, *scene.pair("anna")),
    }
    return {name: attackers.client(scene.address, tls) for name, tls in contexts.items()}


def test_every_path_of_flower_is_closed(scene, figure):
    import attackers
    from wayfare.deploy.fence_rules import PREFIX, ROUTES

    routes = attackers.all_routes()
    assert {("POST", PREFIX + name) for name in ROUTES} < set(routes)
    controls = [route for route in routes if route[1].startswith(("/v1/control/", "/v1/runtime/"))]
    assert len(controls) > 60
    tried, passed = 0, []
    for name, caller in callers(scene).items():
        with caller:
            extra = [("GET", "/"), ("POST", "/v1/fleet/../control/start-run"), ("POST", "/v1/fleet//activate-node")]
            extra += [("POST", "/v1/fleet/register-node"), ("POST", "//v1/control/start-run")]
            extra += [(method, PREFIX + "activate-node") for method in ("GET", "PUT", "DELETE", "OPTIONS")]
            for method, path in [*routes, *extra]:  # those for nodes too: nothing was signed
                tried += 1
                passed += [(name, method, path)] if attackers.accepted(caller, method, path) else []
    assert passed == []
    assert scene.refused("is not for nodes") and scene.refused("no certificate of this federation")
    figure(f"requests of strangers and of a registered node to every path of Flower: {tried}, accepted 0")


def test_no_foreign_code_runs_and_no_key_is_registered(scene, figure):
    from flwr.proto import control_pb2 as control
    from flwr.proto.fab_pb2 import Fab

    import attackers
    import federation

    mark = scene.folder / "mark"
    app = attackers.evil_app(scene.folder / "evilapp", mark, mark)
    home, key = scene.folder / "flwr", scene.folder / "stranger.pub"
    key.write_bytes(_public(scene.folder))
    with ThreadPoolExecutor(2) as pool:
        tries = [("run", str(app), "there"), ("supernode", "register", str(key), "there", "--name", "anna")]
        ends = list(
            pool.map(
                lambda words: attackers.flwr(home / words[0], scene.address, scene.authority, *words[1]),
                [(str(number), words) for number, words in enumerate(tries)],
            )
        )
    assert all(ends), "Flower's own command line got through"
    run = control.StartRunRequest(fab=Fab(content=attackers.bundle(app))).SerializeToString()
    register = control.RegisterNodeRequest(public_key=b"any", name="anna").SerializeToString()
    for caller in callers(scene).values():
        with caller:
            assert not attackers.accepted(caller, "POST", "/v1/control/start-run", run)
            assert not attackers.accepted(caller, "POST", "/v1/control/register-node", register)
    assert not mark.exists()
    with scene.owner() as owner:  # the same request does run where it may: this test can fail
        assert attackers.accepted(owner, "POST", "/v1/control/start-run", run)
        federation.until("the owner's app ran", mark.exists, 60)
    figure("`flwr run evilapp`, `flwr supernode register` and their requests, by five callers: 12, accepted 0")


def _public(folder):
    from cryptography.hazmat.primitives import serialization

    import attackers

    _, key = attackers.self_signed(folder / "public", "anna")
    public = serialization.load_pem_private_key(key.read_bytes(), None).public_key()
    return public.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)


class Node:
    """A registered node that speaks Flower's language, and can lie in it."""

    def __init__(self, scene, name, certificate=None, sign_as=None):
        from cryptography.hazmat.primitives import serialization
        from flwr.supercore.primitives.asymmetric import public_key_to_bytes

        import attackers

        pair = certificate or scene.pair(name)
        key = (sign_as and scene.pair(sign_as)[1]) or pair[1]
        self.key = serialization.load_pem_private_key(key.read_bytes(), None)
        self.public = public_key_to_bytes(self.key.public_key())
        tls = attackers.context(scene.authority, *pair)
        self.client = scene.open.enter_context(attackers.client(scene.address, tls))

    def ask(self, route, request):
        from flwr.supercore.date import now
        from flwr.supercore.primitives.asymmetric import sign_message

        moment = now().isoformat()
        encoded = {"flwr-public-key": self.public, "flwr-signature": sign_message(self.key, moment.encode())}
        headers = {name: base64.b64encode(value).decode() for name, value in encoded.items()}
        headers |= {"flwr-timestamp": moment, "content-type": "application/protobuf", "accept": "application/protobuf"}
        return self.client.post(f"/v1/fleet/{route}", content=request.SerializeToString(), headers=headers)


def test_nobody_acts_in_the_name_of_another(scene, figure):
    from flwr.proto import fleet_pb2 as fleet
    from flwr.proto import message_pb2 as message
    from flwr.proto.node_pb2 import Node as Number

    dora, bert = Node(scene, "dora"), Node(scene, "bert")
    mine = fleet.ActivateNodeRequest(public_key=dora.public, heartbeat_interval=30)
    number = fleet.ActivateNodeResponse.FromString(dora.ask("activate-node", mine).content).node_id  # it may
    assert number and dora.ask("activate-node", mine).status_code >= 400  # but not twice at once
    node = Number(node_id=number)
    reply = message.Message(metadata=message.Metadata(src_node_id=number + 1, run_id=1))
    tree = message.ObjectTree(object_id="x")
    forged = fleet.PushMessagesRequest(node=node, messages_list=[reply], message_object_trees=[tree])
    lies = [
        (Node(scene, "bert", sign_as="dora"), "activate-node", mine, "not that of its certificate"),
        (bert, "activate-node", mine, "another node's key"),
        (dora, "push-messages", forged, "in the name of another node"),
        (dora, "push-messages", fleet.PushMessagesRequest(node=node), "not exactly one reply"),
        (dora, "pull-object", message.PullObjectRequest(node=node, run_id=1, object_id="ab"), "not sent to it"),
        (dora, "confirm-message-received",
         message.ConfirmMessageReceivedRequest(node=node, run_id=1, message_object_id="ab"), "a message that was not"),
        (dora, "push-object", message.PushObjectRequest(node=node, object_id="ab", object_content=b"x"), "no part of"),
    ]  # fmt: skip
    for caller, route, request, reason in lies:
        assert caller.ask(route, request).status_code == 403, reason
        lines = [line for line in scene.refused(reason) if line["name"] in ("bert", "dora")]
        assert len(lines) == 1 and lines[0]["key"].startswith("SHA256:"), reason
    theft = fleet.PullMessagesRequest(node=node)
    assert bert.ask("pull-messages", theft).status_code == 401  # Flower's own check of the number
    assert [line for line in scene.refused("Flower refused pull-messages") if line["name"] == "bert"]
    dora.ask("deactivate-node", fleet.DeactivateNodeRequest(node_id=number))
    events = [line["event"] for line in scene.seen() if line["name"] == "dora" and line["event"] != "refused"]
    assert events == ["join", "leave"]
    figure(f"attempts of a registered node to act as another: {len(lies) + 1}, accepted 0, on record {len(lies) + 1}")


def test_a_name_belongs_to_one_key(scene, figure):
    from flwr.proto import fleet_pb2 as fleet

    from wayfare.cli import main
    from wayfare.deploy.keys import enrol

    keys = scene.stage.folder / "keys"
    again = ["federate", "invite", "anna", "--server", str(scene.address), "--certificates", str(keys)]
    assert main([*again, "--out", str(scene.folder / "again.invite")]) == 2
    # even the authority's own signature is not enough: a second certificate for the name is not on the list
    copy = scene.folder / "copy"
    for name in ("ca.key", "ca.crt"):
        copy.mkdir(exist_ok=True)
        shutil.copy(keys / name, copy / name)
    pair = [scene.folder / "second.crt", scene.folder / "second.key"]
    for path, text in zip(reversed(pair), enrol(copy, "anna", 1)):
        path.write_bytes(text)
    second = Node(scene, "anna", certificate=pair)
    request = fleet.ActivateNodeRequest(public_key=second.public, heartbeat_interval=30)
    assert second.ask("activate-node", request).status_code == 401
    # a node that is revoked is refused by the running server, on the connection that it has
    dora = Node(scene, "dora")
    asked = fleet.ActivateNodeRequest(public_key=dora.public, heartbeat_interval=30)
    assert dora.ask("activate-node", asked).status_code == 200
    assert main(["federate", "revoke", "dora", "--certificates", str(keys)]) == 0
    assert dora.ask("activate-node", asked).status_code == 401
    assert dora.ask("activate-node", asked).status_code == 401  # on a new one too
    assert {line["name"] for line in scene.refused("revoked, or is not on the list")} == {"anna", "dora"}
    figure("a name invited twice, a second certificate for it, a revoked node: 4 attempts, accepted 0")


def test_a_flood_of_bytes_fills_no_memory(scene, figure):
    import attackers

    node = attackers.context(scene.authority, *scene.pair("anna"))
    known = f"POST /v1/fleet/push-object HTTP/1.1\r\nHost: x\r\nContent-Length: {GIGABYTE}\r\n\r\n".encode()
    endless = b"POST /v1/fleet/push-object HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3B9ACA00\r\n"
    header = b"POST /v1/fleet/push-object HTTP/1.1\r\nHost: x\r\nX: "
    stranger = attackers.context(scene.authority)
    tries = [(tls, head) for tls in (None, stranger, node) for head in (known, endless, header)]
    before = {name: attackers.resident(scene.process(name)) for name in ("fence", "superlink")}
    there = (scene.address.host, scene.address.port)
    with ThreadPoolExecutor(3) as pool:
        sent = list(pool.map(lambda one: attackers.flood(there, *one, GIGABYTE), tries))
    grown = {name: attackers.resident(scene.process(name)) - before[name] for name in before}
    assert max(sent) < 2**25, sent  # what lies in sockets' buffers, and a part that is within the limit
    assert all(more < ALLOWED for more in grown.values()), grown
    assert [line for line in scene.refused("a request of more than") if line["name"] == "anna"]
    figure(f"bodies and headers of 1 GB: {len(tries)}, cut off after at most {max(sent) / 1e6:.1f} MB, "
           f"growth {max(grown.values()) / 1e6:.0f} MB")  # fmt: skip


def test_those_who_say_nothing_do_not_keep_others_out(scene):
    from flwr.proto import fleet_pb2 as fleet

    there = (scene.address.host, scene.address.port)
    with contextlib.ExitStack() as stack:
        silent = [stack.enter_context(socket.create_connection(there)) for _ in range(150)]
        time.sleep(0.5)
        closed = 0
        for line in silent:
            line.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                closed += line.recv(1) == b""
        assert closed >= 150 - 64
    time.sleep(0.5)
    bert = Node(scene, "bert")
    request = fleet.ActivateNodeRequest(public_key=b"no key", heartbeat_interval=30)
    assert bert.ask("activate-node", request).status_code == 403  # it is heard again
    assert scene.refused("too many connections")


def test_slow_callers_do_not_keep_others_out(scene, figure):
    """A byte now and then: 100 strangers of one address, and two nodes with all the connections that they may have."""
    from flwr.proto import message_pb2 as message
    from flwr.proto.node_pb2 import Node as Number

    import attackers

    there = (scene.address.host, scene.address.port)
    hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100)  # of TLS; it never ends
    head = b"POST /v1/fleet/push-object HTTP/1.1\r\nHost: x\r\nContent-Length: 60000\r\n\r\n"
    slow: list[tuple[socket.socket, bytes]] = []
    with contextlib.ExitStack() as stack:
        for name in ("anna", "carl"):
            tls = attackers.context(scene.authority, *scene.pair(name))
            for _ in range(16):
                wire = stack.enter_context(socket.create_connection(there))
                line = stack.enter_context(tls.wrap_socket(wire, server_hostname=there[0]))
                line.sendall(head)
                slow.append((line, bytes(100)))
        for _ in range(100):
            wire = socket.create_connection(there, source_address=("127.0.0.2", 0))
            slow.append((stack.enter_context(wire), hello))
        answered = []
        for step in range(4):
            for line, text in slow:
                with contextlib.suppress(OSError):
                    line.sendall(text[step : step + 1])
            bert, began = Node(scene, "bert"), time.monotonic()  # on a connection of its own each time
            request = message.PushObjectRequest(node=Number(node_id=1), object_id="ab", object_content=b"x")
            assert bert.ask("push-object", request).status_code == 403  # heard, and refused for what it says
            answered.append(time.monotonic() - began)
            time.sleep(0.5)
    assert max(answered) < 5
    figure(
        f"132 slow callers: {len(answered)} of {len(answered)} honest requests heard, in at most {max(answered):.1f} s"
    )


def test_a_slow_request_has_one_deadline_for_all_of_its_bytes():
    import asyncio

    import h11

    from wayfare.deploy.fence import _Stream

    async def drip(reader):
        for byte in b"POST / HTTP/1.1\r\nHost: x\r\n\r\n":
            reader.feed_data(bytes([byte]))
            await asyncio.sleep(0.05)

    async def read(seconds):
        reader = asyncio.StreamReader()
        task = asyncio.create_task(drip(reader))
        try:
            return await _Stream(h11.Connection(h11.SERVER), reader, None).event(seconds)
        finally:
            task.cancel()

    with pytest.raises(TimeoutError):
        asyncio.run(read(0.3))  # 29 bytes take 1.4 s
    assert isinstance(asyncio.run(read(20)), h11.Request)


def test_other_users_of_the_machine_reach_nothing(scene, figure):
    import httpx

    import attackers

    port, secret = scene.local_port()
    place = secret.with_name("socket")
    assert [path.stat().st_mode & 0o777 for path in (secret.parent, secret, place)] == [0o700, 0o600, 0o600]
    routes = attackers.all_routes()
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False) as caller:  # the owner, without the secret
        tried = [(path, attackers.accepted(caller, method, path)) for method, path in routes]
    assert [path for path, passed in tried if passed] == []
    count = len(tried)
    if os.getuid() == 0:
        own = [path for method, path in routes if method == "POST"]
        assert {attackers.as_nobody(port, path) for path in own} == {403}
        count += len(own)
    figure(f"requests of local users to Flower's own port, the owner's without the secret too: {count}, accepted 0")


def test_a_node_runs_no_other_app_even_if_its_server_sends_one(scene, figure):
    from flwr.proto import control_pb2 as control
    from flwr.proto.fab_pb2 import Fab

    import attackers
    import federation

    mark, node_mark = scene.folder / "server-mark", scene.folder / "cache/node-mark"  # nodes can write to the cache
    app = attackers.evil_app(scene.folder / "otherapp", mark, node_mark)
    scene.stage.join("carl")
    joined = lambda: any((line["event"], line["name"]) == ("join", "carl") for line in scene.seen())  # noqa: E731
    federation.until("carl has joined", joined, 90)
    run = control.StartRunRequest(fab=Fab(content=attackers.bundle(app))).SerializeToString()
    with scene.owner() as owner:
        assert attackers.accepted(owner, "POST", "/v1/control/start-run", run)
    log, text = scene.stage.folder / "homes/carl/node.log", "refused: the server sent an app"
    federation.until("the node says so", lambda: log.exists() and text in log.read_text(), 90)
    federation.until("its owner sees it", lambda: text in scene.stage.said("carl"), 10)
    assert mark.exists() and not node_mark.exists()
    figure("an enrolled node whose server sends another app: it says so, and nothing of it ran")


def test_three_nodes_with_invitations_give_the_model_of_the_local_engine(scene, figure, capfd):
    from wayfare.cli import main

    scene.stage.gather()
    summary = scene.stage.finish(scene.server, "peace")
    assert summary["model_sha256"] == scene.local["model_sha256"]
    assert summary["metrics"] == scene.local["metrics"] and summary["refused"] == 0
    assert {line["name"] for line in scene.seen() if line["event"] == "join"} == {"anna", "bert", "carl", "dora"}
    told = (scene.stage.folder / "homes/anna/node.log").read_text()
    assert "round 1" in told and "bytes of tensors" in told and "Flower" not in told
    capfd.readouterr()
    assert main(["federate", "status", str(scene.stage.folder / "peace"), "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert found["fence"]["refused"] > 500 and {row["key"][:7] for row in found["nodes"]} == {"SHA256:"}
    assert main(["federate", "status", str(scene.stage.folder / "peace")]) == 0
    assert "connections refused" in capfd.readouterr().out
    figure("after all that, three nodes with invitation files: the model of the local engine, bit for bit")


def test_the_nodes_certificate_is_no_servers(scene):
    """A registered node cannot pose as the server to others."""
    tls = ssl.create_default_context(cafile=str(scene.authority))
    tls.check_hostname = False
    near, far = socket.socketpair()
    posing = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    posing.load_cert_chain(*scene.pair("anna"))
    with near, far, ThreadPoolExecutor(1) as pool:
        server = pool.submit(lambda: posing.wrap_socket(far, server_side=True))
        with pytest.raises(ssl.SSLCertVerificationError, match="purpose"):
            tls.wrap_socket(near)
        near.close()
        assert server.exception() is not None
