"""Nobody gets in without the token, from another site, or to a file."""

import asyncio
import re
import socket
import time

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from wayfare.serve.access import Access, Keys

HOST = "127.0.0.1:8000"


def client(**options):
    app = Starlette(routes=[Route("/thing", lambda _: PlainTextResponse("in"), methods=["GET", "POST"])])
    keys = Keys(**options)
    return keys, TestClient(Access(app, keys, frozenset({HOST})), base_url=f"http://{HOST}", follow_redirects=False)


def entered():
    keys, browser = client()
    assert browser.get(f"/thing?token={keys.token}").status_code == 303
    return keys, browser


def test_without_the_token_nothing_is_shown():
    _, browser = client()
    answer = browser.get("/thing")
    assert answer.status_code == 401 and answer.text != "in"
    assert browser.post("/thing").status_code == 401
    assert browser.get("/thing?token=wrong").status_code == 403
    assert browser.get("/thing", headers={"authorization": "Bearer wrong"}).status_code == 401


def test_the_token_leaves_the_address_and_becomes_a_strict_cookie():
    keys, browser = client()
    answer = browser.get(f"/thing?a=1&token={keys.token}")
    assert answer.headers["location"] == "/thing?a=1"
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie and "samesite=strict" in cookie and keys.token.lower() not in cookie
    assert browser.get("/thing").text == "in"


def test_the_token_does_not_lead_elsewhere():
    keys, browser = client()
    for path in ("//evil.example/x", "/\\evil.example"):
        where = browser.get(f"http://{HOST}{path}?token={keys.token}").headers.get("location", "/")
        assert where.startswith("/") and not where.startswith(("//", "/\\"))


def test_a_program_sends_the_token_itself():
    keys, browser = client()
    assert browser.post("/thing", headers={"authorization": f"Bearer {keys.token}"}).text == "in"


def test_a_cookie_alone_changes_nothing():
    keys, browser = entered()
    assert browser.post("/thing").status_code == 403
    assert browser.post("/thing", headers={"x-csrf-token": "wrong"}).status_code == 403
    assert browser.post("/thing", headers={"x-csrf-token": keys.csrf}).text == "in"


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": f"https://{HOST}"},
        {"origin": "http://127.0.0.1:9999"},
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "cors"},
        {"sec-fetch-site": "same-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"},
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"},
        {"host": "evil.example:8000"},
        {"host": "127.0.0.1"},
        {"host": "127.0.0.1:8000.evil.example"},
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_other_sites_are_refused(headers, method):
    keys, browser = entered()
    answer = browser.request(method, "/thing", headers={**headers, "x-csrf-token": keys.csrf})
    assert answer.status_code == 403 and answer.text != "in"


def test_every_answer_has_the_policy():
    _, browser = entered()
    for path in ("/thing", "/nothing"):
        policy = browser.get(path).headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy and "frame-ancestors 'none'" in policy


def test_guessing_is_slowed_down():
    keys, browser = client(password="a long password")
    for _ in range(19):
        assert browser.post("/enter", data={"secret": "a guess"}).status_code == 403
    assert browser.post("/enter", data={"secret": "a guess"}).status_code == 429
    assert browser.post("/enter", data={"secret": "a long password"}).status_code == 429
    assert browser.get(f"/thing?token={keys.token[:-1]}").status_code == 429
    # nobody can lock out who has the token: it cannot be guessed
    assert browser.get("/thing", headers={"authorization": f"Bearer {keys.token}"}).text == "in"
    assert browser.get("/thing", headers={"authorization": "Bearer a long password"}).status_code == 401


def test_the_password_opens_too():
    _, browser = client(password="a long password")
    assert browser.post("/enter", data={"secret": "a long passwort"}).status_code == 403
    assert browser.post("/enter", data={"secret": "a long password"}).status_code == 303
    assert browser.get("/thing").text == "in"


def test_who_only_waits_is_sent_away(monkeypatch):
    """Connections without a request, or with half of one, are closed; and one address has only so many."""
    from uvicorn.config import Config
    from uvicorn.server import Server

    from wayfare.serve import connections

    monkeypatch.setattr(connections, "SECONDS", 0.3)
    monkeypatch.setattr(connections, "MOST_OF_ONE", 3)

    async def app(scope, receive, send):
        await asyncio.sleep(1)
        await PlainTextResponse("in")(scope, receive, send)

    async def scenario():
        server = Server(
            Config(app, port=0, http=connections.PatientProtocol, lifespan="off", ws="none", log_level="critical")
        )
        serving = asyncio.create_task(server.serve())
        while not server.started:
            assert not serving.done(), serving.exception()
            await asyncio.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(4)]
        assert await asyncio.wait_for(opened[3][0].read(), 0.2) == b""  # the fourth is one too many
        opened[1][1].write(b"GET / HT")
        opened[2][1].write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")  # answered late, and waited for
        assert await asyncio.wait_for(opened[0][0].read(), 5) == await asyncio.wait_for(opened[1][0].read(), 5) == b""
        assert (await asyncio.wait_for(opened[2][0].read(), 5)).endswith(b"in")
        for _, writer in opened:
            writer.close()
        server.should_exit = True
        await serving

    asyncio.run(scenario())


def test_over_tls_the_cookie_never_travels_in_clear():
    app = Starlette(routes=[Route("/thing", lambda _: PlainTextResponse("in"))])
    keys = Keys("a long password")
    guarded = Access(app, keys, frozenset({"desk.local"}), scheme="https")
    browser = TestClient(guarded, base_url="https://desk.local", follow_redirects=False)
    answer = browser.post("/enter", data={"secret": "a long password"}, headers={"origin": "https://desk.local"})
    assert answer.status_code == 303 and "; secure" in answer.headers["set-cookie"].lower()
    assert browser.get("/thing", headers={"origin": "http://desk.local"}).status_code == 403


# ---- the whole server


def test_paths_lead_nowhere(server):
    """200 ways to ask for a file: none gives one."""
    steps = ["../", "..%2f", "%2e%2e/", "..%5c", "....//", "%2e%2e%2f", "..%252f", ".%00./", "/", "file:///"]
    files = ["etc/passwd", "experiment.toml", "model.safetensors", "server.key", "etc/hosts"]
    places = ["/static/", "/picture/", "/made/", "/api/v1/runs/"]
    with server.api() as api:
        asked = 0
        for place in places:
            for step in steps:
                for file in files:
                    answer = api.get(f"{place}{step * 6}{file}")
                    asked += 1
                    assert answer.status_code in (400, 404), (place, step, file, answer.status_code)
                    assert b"root:" not in answer.content and b"[task]" not in answer.content
    assert asked == 200


def test_no_operation_is_open_to_other_sites(server):
    """Every page and operation, asked with the right token by another site or under another name: all refused."""
    foreign = [{"origin": "http://evil.example"}, {"origin": "null"}, {"host": f"evil.example:{server.port}"},
               {"sec-fetch-site": "cross-site", "sec-fetch-mode": "cors", "sec-fetch-dest": "empty"},
               {"sec-fetch-site": "same-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "script"}]  # fmt: skip
    pages = ["/", "/search", "/runs", "/start", "/compare", "/data", "/federation", "/static/main.js", "/enter"]
    with server.api() as api:
        paths = api.get("/api/v1/openapi.json").json()["paths"]
        asked = [(method, path) for path, operations in paths.items() for method in operations]
        asked += [(method, path) for path in pages for method in ("get", "post")]
        for method, path in asked:
            for headers in foreign:
                answer = api.request(method, re.sub("{.*?}", "x", path), headers=headers, content=b"{}")
                assert answer.status_code == 403, (method, path, headers)
        assert len(asked) * len(foreign) >= 190


def test_a_huge_upload_and_a_slow_client_do_no_harm(server, material, uploaded, indexes):
    head = f"POST /api/v1/photos HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nAuthorization: Bearer {server.token}\r\n"
    slow = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(30)]
    for number, each in enumerate(slow):
        rest = f"Content-Length: {2**20}\r\n\r\nx" if number % 2 else ""
        each.sendall(f"{head}{rest}".encode())  # and the rest never comes
    with socket.create_connection(("127.0.0.1", server.port)) as large:
        large.sendall(f"{head}Content-Length: {10**9}\r\n\r\n".encode())
        assert b"413" in large.recv(100)
    with server.api() as api:

        def endless():
            for _ in range(60):
                yield bytes(2**20)

        try:
            assert api.post("/api/v1/photos", content=endless()).status_code == 413
        except Exception as error:  # the server may close before all is sent
            assert "Write" in type(error).__name__ or "Remote" in type(error).__name__ or "Read" in type(error).__name__
        began = time.monotonic()
        photo = (material / "photo.jpg").read_bytes()
        assert api.post("/api/v1/photos", content=photo).status_code == 201
        assert api.get("/api/v1/locate", params={"index": indexes["places"], "photo": uploaded}).status_code == 200
        assert time.monotonic() - began < 20
    for each in slow:
        each.close()


def test_hostile_pictures_are_refused_with_a_reason(server):
    import io

    from PIL import Image

    file = io.BytesIO()
    Image.new("1", (30_000, 30_000)).save(file, "PNG")
    with server.api() as api:
        for data, words in ((b"", "empty"), (b"<svg/>", "not a JPEG"), (b"\xff\xd8\xff\xe0junk", "truncated"),
                            (file.getvalue(), "too large")):  # fmt: skip
            answer = api.post("/api/v1/photos", content=data)
            assert answer.status_code == 400 and words in answer.json()["error"]


def test_any_request_gets_an_answer_that_is_no_fault(server):
    """Odd values for every operation of the API: never a 5xx."""
    import random

    odd = ["", "0", "-1", "1e999", "nan", "x" * 600, "../..", "<script>", "\u202e", "null", "[]", "{}", "9" * 40, "é"]
    rng = random.Random(0)
    with server.api() as api:
        paths = api.get("/api/v1/openapi.json").json()["paths"]
        for path, operations in paths.items():
            if path == "/api/v1/events":
                continue
            for method, about in operations.items():
                for _ in range(25):
                    address = path
                    for given in about.get("parameters", []):
                        if given["in"] == "path":
                            value = rng.choice(odd[1:]).replace("/", "%2f").replace(".", "%2e")
                            address = address.replace("{" + given["name"].split(":")[0] + "}", value)
                    query = {p["name"]: rng.choice(odd) for p in about.get("parameters", []) if p["in"] == "query"}
                    body = rng.choice([b"", b"{", b"[]", b"null", b'{"settings": {"a": "b"}}', b'{"name": 1}', b"\xff"])
                    answer = api.request(method, address.replace(":path", ""), params=query, content=body)
                    assert answer.status_code < 500, (method, address, query, body, answer.text)
