"""Those who have no business with a federation's server, and one who has: each tries whatever Flower serves."""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import io
import os
import socket
import ssl
import subprocess
import sys
import zipfile
from pathlib import Path

import httpx

EVIL = """\
[project]
name = "evil"
version = "1.0.0"
description = "leaves a mark wherever it runs"
license = "Apache-2.0"
dependencies = []
[tool.flwr.app]
publisher = "evil"
[tool.flwr.app.components]
serverapp = "evil.apps:server"
clientapp = "evil.node:client"
"""
APPS = """\
from pathlib import Path
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import ServerApp
Path({mark!r}).write_text("ran")
server = ServerApp()

@server.main()
def main(grid, context):
    content = RecordDict({{"call": ConfigRecord({{"program": "hello"}})}})
    grid.send_and_receive([Message(content, node, "query") for node in grid.get_node_ids()], timeout=120)
"""
NODE = """\
from pathlib import Path
from flwr.clientapp import ClientApp
Path({mark!r}).write_text("ran")
client = ClientApp()
"""


def evil_app(folder: Path, mark: Path, node_mark: Path) -> Path:
    """A Flower app that leaves a mark when a server imports it, and another when a node does."""
    (folder / "evil").mkdir(parents=True)
    (folder / "pyproject.toml").write_text(EVIL)
    (folder / "evil/__init__.py").touch()
    (folder / "evil/apps.py").write_text(APPS.format(mark=str(mark)))
    (folder / "evil/node.py").write_text(NODE.format(mark=str(node_mark)))
    return folder


def bundle(folder: Path) -> bytes:
    """The app as Flower's command line would send it."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as file:
        manifest = []
        for path in sorted(path for path in folder.rglob("*") if path.suffix in (".py", ".toml")):
            name, content = str(path.relative_to(folder)), path.read_bytes()
            file.writestr(name, content)
            manifest.append(f"{name},{hashlib.sha256(content).hexdigest()},{8 * len(content)}")
        file.writestr(".info/CONTENT", "\n".join(manifest))
    return made.getvalue()


def all_routes() -> list[tuple[str, str]]:
    """Every method and path that Flower's SuperLink serves, from Flower itself."""
    from fastapi.routing import iter_route_contexts
    from flwr.superlink.main import create_app

    found = set()
    for each in iter_route_contexts(create_app().routes):
        path = getattr(each.route, "path_format", None) or each.route.path
        path = getattr(each, "path", path) or path
        found |= {(method, path) for method in (getattr(each.route, "methods", None) or {"GET"})}
    return sorted(found)


def self_signed(folder: Path, name: str) -> tuple[Path, Path]:
    """A certificate that nobody vouches for, and its key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key, now = ec.generate_private_key(ec.SECP384R1()), datetime.datetime.now(datetime.UTC)
    who = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    made = x509.CertificateBuilder().subject_name(who).issuer_name(who).public_key(key.public_key())
    made = made.serial_number(1).not_valid_before(now).not_valid_after(now + datetime.timedelta(days=1))
    pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "own.crt").write_bytes(made.sign(key, hashes.SHA384()).public_bytes(pem))
    (folder / "own.key").write_bytes(key.private_bytes(pem, form, serialization.NoEncryption()))
    return folder / "own.crt", folder / "own.key"


def context(authority: Path, *certificate: Path) -> ssl.SSLContext:
    """The client's side of TLS, with or without a certificate."""
    made = ssl.create_default_context(cafile=str(authority))
    if certificate:
        made.load_cert_chain(*certificate)
    return made


def client(address: object, tls: ssl.SSLContext | None) -> httpx.Client:
    scheme, verify = ("http", False) if tls is None else ("https", tls)
    return httpx.Client(base_url=f"{scheme}://{address}", verify=verify, trust_env=False, timeout=10)


def accepted(caller: httpx.Client, method: str, path: str, content: bytes = b"") -> bool:
    """Whether anything but a refusal comes back."""
    headers = {"content-type": "application/protobuf", "accept": "application/protobuf"}
    try:
        return caller.request(method, path, content=content, headers=headers).status_code < 400
    except httpx.TransportError:
        return False


def flwr(home: Path, address: object, authority: Path, *arguments: str) -> int:
    """Flower's own command line against this server; its exit status."""
    home.mkdir(parents=True)
    lines = ["[superlink]", 'default = "there"', "[superlink.there]", f'address = "{address}"']
    (home / "config.toml").write_text("\n".join([*lines, f'root-certificates = "{authority}"']) + "\n")
    quiet = {"FLWR_HOME": str(home), "FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
    program = str(Path(sys.executable).parent / "flwr")
    done = subprocess.run([program, *arguments], env={**os.environ, **quiet}, capture_output=True, timeout=120)
    return done.returncode


def flood(address: tuple[str, int], tls: ssl.SSLContext | None, head: bytes, total: int) -> int:
    """Send a body until somebody stops it; how many bytes went out."""
    sent, block = 0, b"\0" * 2**16
    with (
        contextlib.suppress(OSError),
        socket.create_connection(address, timeout=10) as wire,
        tls.wrap_socket(wire, server_hostname=address[0]) if tls else wire as line,
    ):
        line.sendall(head)
        while sent < total:
            line.sendall(block)
            sent += len(block)
    return sent


def resident(process: int) -> int:
    """Bytes of memory of a process."""
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def as_nobody(port: int, path: str) -> int:
    """The status of a request from another user of this machine; needs root."""
    reading, writing = os.pipe()
    if not os.fork():
        status = 0
        with contextlib.suppress(Exception):
            os.setgid(65534)
            os.setuid(65534)
            with socket.create_connection(("127.0.0.1", port), timeout=5) as line:
                line.sendall(f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n".encode())
                status = int(line.recv(64).split()[1])
        os.write(writing, str(status).encode())
        os._exit(0)
    os.wait()
    os.close(writing)
    with os.fdopen(reading) as result:
        return int(result.read())
