"""50 people use `wayfare serve` at once: requests per second, how long each waits, memory; beside the Python API alone.

    python benchmarks/serve.py [--quick] [--json] [--photos 100000] [--users 50] [--asked 400]

Each request is a photo of 1280 x 960 pixels that was not asked before: it is uploaded, decoded in the sandboxed
process, and located in an index of so many photographs. The Python API alone does the same work in as many processes
as there are cores, from files, with no server. The users run on the same cores as the server.
--quick: 5,000 photographs, 60 requests, not judged.
"""

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
import numpy as np
from PIL import Image

LEAST = 0.8  # of what the Python API alone answers
SHAPE = (960, 1280)


def make_index(folder, count):
    """Descriptors at random and the demo's network, untrained: what is found does not matter here."""
    from wayfare.core.seeds import rng_for
    from wayfare.experiment import Experiment
    from wayfare.places.data.place_photos import Group, PlacePhotos, text_column
    from wayfare.places.indexing import add
    from wayfare.places.trained_model import Described, TrainedPlaceModel

    experiment = Experiment.read(Path("recipes/demo/places.toml"))
    model = TrainedPlaceModel("serve", experiment.to_toml(), experiment.task, experiment.task.network().eval())
    numbers = experiment.task.describe(model.net, np.zeros((1, *model.size, 3), np.uint8)).shape[1]
    names = text_column([f"{row}.jpg" for row in range(count)])
    place = rng_for(0, "positions").uniform(0, 20_000, (count, 2))
    table = PlacePhotos(
        folder / "photos", names, keys=names, groups=(Group("city", "33N"),), group=np.zeros(count, np.int32),
        easting=place[:, 0], northing=place[:, 1], split=np.full(count, ""),
    )  # fmt: skip

    def described(_model, files):
        for start in range(0, len(files), 50_000):
            size = min(50_000, len(files) - start)
            found = np.random.default_rng([start]).standard_normal((size, numbers), np.float32)
            yield Described(np.arange(start, start + size), found, [], 0.0, 0.0)

    add(model, table, folder / "index", describe=described)


def make_photos(folder, count):
    folder.mkdir()
    for number in range(count):
        small = np.random.default_rng(number).integers(0, 256, (60, 80, 3), np.uint8)
        image = Image.fromarray(small).resize(SHAPE[::-1], Image.Resampling.BICUBIC)
        image.save(folder / f"{number}.jpg", quality=90)


def alone(index, photos):
    """What one process of the Python API takes for some photos."""
    import torch

    from wayfare.places.index import Index
    from wayfare.places.locate import as_result, locate

    torch.set_num_threads(1)
    opened = Index(index)
    locate(opened, photos[:1])
    began = time.perf_counter()
    for photo in photos:
        json.dumps(as_result(opened, locate(opened, [photo]), 5))
    return began, time.perf_counter()


def measure_alone(index, photos, processes):
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        shares = [photos[start::processes] for start in range(processes)]
        spans = list(pool.map(alone, [index] * processes, shares))
    return sum(len(share) / (end - began) for share, (began, end) in zip(shares, spans))


async def user(client, index, photos, waited):
    while photos:
        photo = photos.pop()
        data, began = photo.read_bytes(), time.perf_counter()
        made = await client.post("/api/v1/photos", params={"name": photo.name}, content=data)
        found = await client.get("/api/v1/locate", params={"index": index, "photo": made.json()["photo"]})
        assert found.status_code == 200 and found.json()["answers"], found.text
        waited.append(time.perf_counter() - began)


async def measure_served(base, token, photos, users):
    limits = httpx.Limits(max_connections=users)
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(base_url=base, headers=headers, timeout=600, limits=limits) as client:
        index = (await client.get("/api/v1/indexes")).json()["indexes"][0]["id"]
        await asyncio.gather(*(user(client, index, [photo], []) for photo in photos[:4]))  # every process is up
        waiting, waited = list(photos[4:]), []
        began = time.perf_counter()
        await asyncio.gather(*(user(client, index, waiting, waited) for _ in range(users)))
        return len(waited) / (time.perf_counter() - began), waited


def memory(process):
    """Peak memory of a process and of those below it, added up, in bytes."""
    below, total = {}, 0
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            text = status.read_text()
        except OSError:
            continue
        parent, peak = re.search(r"PPid:\s+(\d+)", text), re.search(r"VmHWM:\s+(\d+)", text)
        below.setdefault(int(parent[1]), []).append((int(status.parent.name), int(peak[1]) if peak else 0))
    todo = [process]
    while todo:
        for child, peak in below.get(todo.pop(), []):
            total += peak
            todo.append(child)
    return 1024 * total


def measure(photographs, users, asked, folder):
    make_index(folder, photographs)
    make_photos(folder / "asked", asked)
    photos = sorted((folder / "asked").iterdir())
    cores = os.cpu_count() or 1
    plain = measure_alone(folder / "index", photos, cores)
    command = [sys.executable, "-m", "wayfare", "serve", "--index", str(folder / "index"), "--no-open", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        try:
            lines = iter(server.stderr.readline, "")
            base, token = next(m.groups() for line in lines if (m := re.search(r"(http://\S+)/\?token=(\S+)", line)))
            served, waited = asyncio.run(measure_served(base, token, photos, users))
            peak = memory(os.getpid())
        finally:
            server.terminate()
    return {
        "photographs": photographs, "users": users, "requests": len(waited), "cores": cores,
        "photos_a_second": served, "photos_a_second_api": plain, "share_of_api": served / plain,
        "seconds_p50": float(np.percentile(waited, 50)), "seconds_p99": float(np.percentile(waited, 99)),
        "peak_memory_bytes": peak,
    }  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--photos", type=int, default=100_000)
    parser.add_argument("--users", type=int, default=50)
    parser.add_argument("--asked", type=int, default=400)
    args = parser.parse_args()
    photographs, asked = (5_000, 60) if args.quick else (args.photos, args.asked)
    with TemporaryDirectory() as folder:
        figures = measure(photographs, args.users, asked, Path(folder))
    met = args.quick or figures["share_of_api"] >= LEAST
    if args.json:
        print(json.dumps({"quick": args.quick, "figures": figures, "met": met}))
    else:
        for name, value in figures.items():
            print(f"{name:24} {value:,.3f}" if isinstance(value, float) else f"{name:24} {value:,}")
        if not args.quick:
            print(f"at least {LEAST} of the Python API alone: {'met' if met else 'missed'}")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
