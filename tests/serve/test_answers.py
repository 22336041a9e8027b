"""The answers are those of the command line; processes are replaced; runs are started and stopped."""

import asyncio
import json
import re
import time

import pytest

from wayfare.cli import main
from wayfare.core.errors import DataError
from wayfare.io.images import decode
from wayfare.serve.workers import WorkerError, Workers


def said(capsys, *arguments):
    capsys.readouterr()
    assert main([*map(str, arguments), "--json"]) == 0
    return without_times(json.loads(capsys.readouterr().out))


def without_times(result):
    return {key: value for key, value in result.items() if key not in ("seconds", "page")}


def test_locate_gives_what_the_command_gives(server, material, indexes, uploaded, capsys, monkeypatch):
    monkeypatch.chdir(material)
    with server.api() as api:
        found = api.get("/api/v1/locate", params={"index": indexes["places"], "photo": uploaded, "k": 3}).json()
    assert without_times(found) == said(
        capsys, "locate", "photo.jpg", "--index", material / "runs" / "places" / "index", "-k", "3"
    )


def test_search_gives_what_the_command_gives(server, material, indexes, uploaded, capsys, monkeypatch):
    monkeypatch.chdir(material)
    index = material / "runs" / "things" / "index"
    with server.api() as api:
        about = next(e for e in api.get("/api/v1/indexes").json()["indexes"] if e["kind"] == "search")["about"]
        words = " ".join(about["words"][5:7])
        by_words = api.get("/api/v1/search", params={"index": indexes["search"], "words": words}).json()
        by_photo = api.get(
            "/api/v1/search", params={"index": indexes["search"], "photo": uploaded, "find": "photos", "k": 4}
        ).json()
    assert without_times(by_words) == said(capsys, "search", words, "--index", index)
    asked = ("search", "--photo", "photo.jpg", "--index", index, "--find", "photos", "-k", "4")
    assert without_times(by_photo) == said(capsys, *asked)


def test_a_position_in_a_file_is_not_kept(server, material):
    """What is kept of a photo has no EXIF, and the file itself is not kept."""
    import io

    from PIL import Image

    from wayfare.serve.decoder import look

    file = io.BytesIO()
    with Image.open(material / "photo.jpg") as image:
        exif = Image.Exif()
        exif[0x010E] = "canary"
        image.save(file, "JPEG", exif=exif)
    assert b"canary" in file.getvalue()
    about, parts = look(file.getvalue(), [[24, 32]], True, 200)
    assert len(parts) == 3 and all(b"canary" not in part for part in parts)
    pixels = decode(file.getvalue())
    assert parts[2] == pixels.tobytes() and (about["height"], about["width"]) == pixels.shape[:2]


def test_a_process_that_dies_or_hangs_is_replaced():
    async def scenario():
        workers = Workers("wayfare.serve.decoder", 1, seconds=20)
        try:
            with pytest.raises(DataError, match="not a JPEG"):
                await workers.ask("thumbnail", b"no picture", side=10)
            (first,) = workers.processes()
            with pytest.raises(WorkerError):
                await workers.ask("nothing that it knows")  # it ends
            with pytest.raises(DataError, match="not a JPEG"):
                await workers.ask("thumbnail", b"no picture", side=10)
            (second,) = workers.processes()
            assert first != second
            workers._seconds = 0.0
            with pytest.raises(WorkerError, match="more than 0 s"):
                await workers.ask("thumbnail", b"no picture", side=10)
            assert workers.processes() == []
        finally:
            await workers.close()

    asyncio.run(scenario())


def test_a_form_has_types_ranges_and_help(server):
    with server.api() as api:
        found = api.post("/api/v1/recipes/quickstart/form", json={"settings": {"strategy.name": "fedprox"}}).json()
        fields = {field["key"]: field for group in found["groups"] for field in group["fields"]}
        assert fields["rounds"]["kind"] == "whole" and fields["rounds"]["low"] == 1
        assert fields["training.optimizer"]["choices"] == ["sgd", "adam", "adamw"]
        assert fields["evaluation.holdout"]["range"] == "at least 0, below 1"
        assert "quarter" not in fields["policy.quorum"]["help"] and "share" in fields["policy.quorum"]["help"]
        assert fields["strategy.mu"]["kind"] == "number"
        asked = {"recipe": "quickstart", "name": "bad", "settings": {"training.lr": "0"}}
        answer = api.post("/api/v1/runs", json=asked)
        assert answer.status_code == 400 and "training.lr = 0.0 is out of range: expected above 0" in answer.text
        asked["settings"] = {"strategy.name": "os:system"}
        assert "is not allowed" in api.post("/api/v1/runs", json=asked).json()["error"]
        asked |= {"name": "../out", "settings": {}}
        assert "cannot be a run's name" in api.post("/api/v1/runs", json=asked).json()["error"]


def test_nodes_are_invited_once_and_revoked(server):
    with server.api() as api:
        id = api.get("/api/v1/federations").json()["federations"][0]["id"]
        asked = {"name": "camera-1", "server": "192.168.1.20:8000"}
        made = api.post(f"/api/v1/federations/{id}/invite", json=asked).json()
        assert made["file"] == "camera-1.invite" and "PRIVATE KEY" in made["text"] and "<svg" in made["qr"]
        assert "invited already" in api.post(f"/api/v1/federations/{id}/invite", json=asked).json()["error"]
        (node,) = api.get("/api/v1/federations").json()["federations"][0]["nodes"]
        assert node["name"] == "camera-1" and node["state"] == "invited"
        assert api.post(f"/api/v1/federations/{id}/revoke", json={"name": "camera-1"}).json()["key"] == node["key"]
        found = api.get("/api/v1/federations").json()["federations"][0]
        assert found["nodes"] == [] and found["revoked"] == ["camera-1"]


def test_a_device_that_meets_others_is_shown(server):
    with server.api() as api:
        [found] = api.get("/api/v1/devices").json()["devices"]
        assert found["name"] == "anna" and found["can_take"] == 1 and found["error"] == ""
        listed, shown = api.get("/federation").text, api.get(f"/devices/{found['id']}").text
        assert f"/devices/{found['id']}" in listed and "0.625" in listed
        made = api.get(re.search(r'src="(/made/[0-9a-f]+)"', shown)[1]).text
        assert "Who was met" in made and "<script>alert" not in made
        assert api.get("/devices/nobody").status_code == 404


def until(condition, seconds=90.0):
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end
        time.sleep(0.2)
    return found


def test_a_run_is_started_watched_stopped_and_continued(server):
    settings = {"rounds": "400", "partition.clients": "2", "topology.per_round": "1", "training.epochs": "1"}
    with server.api() as api:
        asked = {"recipe": "quickstart", "name": "mine", "settings": settings}
        assert api.post("/api/v1/runs", json=asked).status_code == 201
        id = until(lambda: api.get("/api/v1/starting/mine").json()["id"])
        with api.stream("GET", "/api/v1/events") as events:
            for line in events.iter_lines():
                if line.startswith("data: ") and (row := json.loads(line[6:]))["id"] == id and row["done"] >= 2:
                    break
        assert row["state"] == "running" and row["total"] == 400
        assert api.post(f"/api/v1/runs/{id}/stop").status_code == 200
        row = until(lambda: (r := api.get(f"/api/v1/runs/{id}").json())["state"] == "stopped" and r)
        reached = row["done"]
        assert api.post(f"/api/v1/runs/{id}/stop").status_code == 400
        assert api.post(f"/api/v1/runs/{id}/resume", json={"rounds": reached + 1}).status_code == 200
        row = until(lambda: (r := api.get(f"/api/v1/runs/{id}").json())["state"] == "finished" and r)
        assert row["done"] == reached + 1 and row["rounds"][-1]["round"] == reached + 1
