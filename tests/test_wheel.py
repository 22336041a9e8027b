"""The built wheel, installed outside the checkout: what a newcomer gets from `pip install`."""

import json
import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from own_folders import shop, street

ROOT = Path(__file__).parents[1]
# One process for all commands: each would spend seconds on importing torch.
PROGRAM = """
import json, sys
from contextlib import redirect_stdout
from io import StringIO
import wayfare
from wayfare.cli import main

def call(*arguments):
    said = StringIO()
    with redirect_stdout(said):
        status = main([*arguments, "--json"])
    assert status == 0, (arguments, said.getvalue())
    return json.loads(said.getvalue())

found = {"where": wayfare.__file__, "doctor": call("doctor"), "recipes": len(call("list", "recipes")["recipes"])}
found["claims"] = len(call("claims", "--list"))
found["quickstart"] = call("run", "quickstart", "--rounds", "1", "--engine", "local", "--out", "q")["metrics"]
small = ("--rounds", "1", "--engine", "local", "--set", "partition.clients=2", "--set", "evaluation.every=0")
call("run", "search", "--set", "data.path=shop", *small, "--out", "shop-run")
places = ("partition.name=random", "data.test=strips", "data.height=64", "data.width=64", "topology.per_round=0")
call("run", "photos", "--set", "data.path=street", *small, *(w for each in places for w in ("--set", each)),
     "--out", "street-run")
call("index", "street-run", "--photos", "street")
call("index", "shop-run")
found["located"] = call("locate", "street/07.jpg", "--index", "street-run/index")
found["found"] = call("search", "hat", "--index", "shop-run/index", "-k", "3")
print(json.dumps(found, default=str))
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """An empty environment with the wheel in it; what Wayfare depends on is that of the running one."""
    folder = tmp_path_factory.mktemp("wheel")
    build = f"from hatchling.build import build_wheel; print(build_wheel({str(folder)!r}))"
    subprocess.run([sys.executable, "-c", build], cwd=ROOT, check=True, capture_output=True)
    (wheel,) = folder.glob("wayfare-*.whl")
    venv.create(folder / "env", with_pip=False)
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(folder / "env")}))
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
    here = {str(Path(module.__file__).parents[1]) for module in map(__import__, ("torch", "numpy", "pytest"))}
    (packages / "others.pth").write_text("\n".join(sorted(here)) + "\n")  # a .pth there is not followed: no checkout
    return folder


def test_a_wheel_holds_all_that_is_needed_and_nothing_else(installed: Path) -> None:
    (wheel,) = installed.glob("wayfare-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "wayfare/recipes/quickstart.toml" in names and any(name.startswith("wayfare/claims/") for name in names)
    assert any(name.endswith(".html") for name in names) and "wayfare/py.typed" in names
    assert all(name.startswith(("wayfare/", "wayfare-")) for name in names)
    entries = next(name for name in names if name.endswith("entry_points.txt"))
    assert b"wayfare = wayfare.cli:main" in zipfile.ZipFile(wheel).read(entries)


def test_quickstart_locate_and_search_from_the_wheel(installed: Path, shared_cache: Path) -> None:
    street(installed / "street")
    shop(installed / "shop")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [installed / "env/bin/python", "-c", PROGRAM], cwd=installed, capture_output=True, text=True,
        env=environment | {"WAYFARE_CACHE": str(shared_cache)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["where"].startswith(str(installed)) and found["recipes"] > 30 and found["claims"]
    assert found["doctor"]["missing"] == [] and found["doctor"]["where"].startswith(str(installed))
    assert "flower" in found["doctor"]["extras"] and "dev" not in found["doctor"]["extras"]
    assert found["doctor"]["cache"]["path"] == str(shared_cache)
    assert 0 < found["quickstart"]["test/accuracy"] < 1
    assert "48.0" in json.dumps(found["located"]) and "hat" in json.dumps(found["found"])
