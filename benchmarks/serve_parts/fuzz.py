"""Any request at all: schemathesis makes requests from the API's own description, and every answer is looked at.

schemathesis is installed in a place of its own (pip install schemathesis); SCHEMATHESIS names its program, `st`.
"""

import asyncio
import json
import os
import shutil
import subprocess
import tempfile
from collections import Counter
from pathlib import Path

from figures import target
from serve_parts import material
from serve_parts.server import Person, serving

REQUESTS = 10_000
# `events` has no end; ids that exist cannot be guessed, so that valid requests are mostly answered by 404 and 400
LEFT_OUT = "positive_data_acceptance"
IDS = """[parameters]
"query.index" = {index}
"query.photo" = {photo}
"query.run" = {run}
[[operations]]
include-path-regex = "/runs/"
parameters = {{ "path.id" = {run} }}
[[operations]]
include-path-regex = "/federations/"
parameters = {{ "path.id" = {federation} }}
"""


def program():
    return os.environ.get("SCHEMATHESIS") or shutil.which("st")


def measure(folder, quick):
    """Half of the requests with ids that exist, and half with any."""
    keys = folder / "keys"
    keys.mkdir(exist_ok=True)
    given = folder / "runs", "--index", folder / material.networks()[0] / "index", "--certificates", keys
    with serving(*given) as (base, token, server), tempfile.TemporaryDirectory() as out:
        known = asyncio.run(ids(base, token, next((folder / "asked").iterdir())))
        (Path(out) / "known.toml").write_text(IDS.format(**{name: json.dumps(id) for name, id in known.items()}))
        (Path(out) / "any.toml").write_text("")
        found = [run(base, token, Path(out), name, quick) for name in ("known", "any")]
        alive = server.poll() is None
    statuses, failed = (sum((each[what] for each in found), Counter()) for what in ("statuses", "failed_checks"))
    return {"requests": statuses.total(), "statuses": dict(statuses), "failed_checks": dict(failed), "alive": alive,
            "ends": [each["end"] for each in found]}  # fmt: skip


async def ids(base, token, photo):
    """Of an index, a photo, a run and a federation."""
    async with Person(base, token) as person:
        return {
            "index": (await person.get("indexes"))["indexes"][0]["id"],
            "photo": (await person.post("photos", photo.read_bytes()))["photo"],
            "run": (await person.get("runs"))["runs"][0]["id"],
            "federation": (await person.get("federations"))["federations"][0]["id"],
        }


def run(base, token, out, name, quick):
    """One run of schemathesis."""
    events = out / f"{name}.ndjson"
    command = [
        program(), "--config-file", str(out / f"{name}.toml"), "run", f"{base}/api/v1/openapi.json",
        "--header", f"Authorization: Bearer {token}", "--exclude-path", "/api/v1/events",
        "--exclude-checks", LEFT_OUT, "--seed", "1", "--continue-on-failure", "--max-examples", "5" if quick else "550",
        "--phases", "examples,coverage,fuzzing", "--no-color", "--generation-database", "none",
        "--request-timeout", "60", "--report", "ndjson", "--report-ndjson-path", str(events),
        "--suppress-health-check", "all",
    ]  # fmt: skip
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, cwd=out)
    return {**counted(events), "end": done.stdout[-4000:]}


def counted(events):
    """Answers by their status, and checks that failed by their name."""
    statuses, failed = Counter(), Counter()
    with events.open() as lines:
        for line in lines:
            seen = json.loads(line).get("ScenarioFinished", {}).get("recorder", {})
            for interaction in seen.get("interactions", {}).values():
                statuses[str((interaction.get("response") or {}).get("status_code", "none"))] += 1
            for checks in seen.get("checks", {}).values():
                failed.update(check["name"] for check in checks if check["status"] == "failure")
    return {"statuses": statuses, "failed_checks": failed}


def targets(figures):
    faults = sum(count for status, count in figures["statuses"].items() if status.startswith("5") or status == "none")
    return [
        target("requests of schemathesis", figures["requests"], REQUESTS) | {"timed": True},
        target("of these answered by 5xx, or not at all", faults, most=0),
        target("checks of schemathesis that failed", sum(figures["failed_checks"].values()), most=0),
    ]


def show(figures, console):
    console.print_json(data={key: value for key, value in figures.items() if key != "ends"})
    for text in figures["ends"]:
        console.print(text, markup=False, highlight=False)
