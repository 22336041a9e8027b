"""People who use it at once: each uploads a photo, asks where it was, what is similar, for its graph; then words.

The Python API alone answers the same questions from files, in as many processes as there are cores. The users run on
the same cores as the server. On a busy machine the server gains by the clock, since it has more processes, each with
its share; so this is to be run on a quiet one.
"""

import asyncio
import functools
import json
import os
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np

from figures import target
from serve_parts import material
from serve_parts.server import Person, cpu_seconds, peak_memory, serving

LEAST = 0.8  # of what the Python API alone answers
QUESTIONS = ("locate", "similar", "graph", "words")
WORDS = ("red car", "windmill", "blue sky", "a tree and a street", "building", "grass", "road", "people")
NEAREST = 5


def words_of(number):
    return f"{WORDS[number % len(WORDS)]} {number}"  # no two are alike, so that no answer is kept from before


# ---- the Python API alone


def alone(folder, network, photos, boxes):
    """Seconds, and CPU seconds, in which one process answers all questions about some photos."""
    import torch

    from wayfare.hashing.search import Query, SearchIndex, search
    from wayfare.hashing.search import as_result as found_words
    from wayfare.places.index import Index
    from wayfare.places.locate import as_result, locate
    from wayfare.scenes.boxes import read_boxes
    from wayfare.scenes.graph import GraphReport, as_table, graphs
    from wayfare.scenes.scene_model import load_scene_model

    torch.set_num_threads(1)
    places, codes = Index(folder / network / "index"), SearchIndex(folder / "runs" / "search" / "index")
    scenes, given = load_scene_model(folder / "runs" / "scenes"), read_boxes(boxes)

    def answer(photo):
        json.dumps(as_result(places, locate(places, [photo], NEAREST), NEAREST))
        json.dumps(found_words(codes, search(codes, [Query(photo=photo)], NEAREST, "photos"), NEAREST))
        json.dumps([as_table(each) for each in graphs(scenes, [photo], boxes=given, report=GraphReport())])
        json.dumps(found_words(codes, search(codes, [Query(words_of(int(photo.stem)))], NEAREST), NEAREST))

    answer(photos[0])
    began, cpu = time.perf_counter(), time.process_time()
    for photo in photos:
        answer(photo)
    return time.perf_counter() - began, time.process_time() - cpu


def measure_alone(folder, network, photos, boxes):
    processes = os.cpu_count() or 1
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        shares = [photos[start::processes] for start in range(processes)]
        spans = list(pool.map(alone, [folder] * processes, [network] * processes, shares, [boxes] * processes))
    each_second = sum(len(share) / seconds for share, (seconds, _) in zip(shares, spans))
    return len(QUESTIONS) * each_second, sum(cpu for _, cpu in spans) / len(photos) / len(QUESTIONS)


# ---- served


async def visit(person, offers, photo, drawn, waited):
    """One photo and some words; how long each question took, with the upload in the first."""
    began = time.perf_counter()
    id = (await person.post("photos", photo.read_bytes(), name=photo.name))["photo"]
    codes, asked = offers["search"], {"photo": id, "k": NEAREST}
    graph = json.dumps({"run": offers["scenes"], "photo": id, "boxes": drawn}).encode()
    for question, ask in {
        "locate": lambda: person.get("locate", index=offers["places"], **asked),
        "similar": lambda: person.get("search", index=codes, find="photos", **asked),
        "graph": lambda: person.post("graph", graph),
        "words": lambda: person.get("search", index=codes, words=words_of(int(photo.stem)), k=NEAREST),
    }.items():
        assert await ask()
        waited[question].append(time.perf_counter() - began)
        began = time.perf_counter()


async def offers_of(base, token):
    async with Person(base, token) as person:
        found = (await person.get("indexes"))["indexes"]
    assert not any(each["error"] for each in found), found
    ids = {each["kind"]: each["id"] for each in found}
    return ids, material.boxes(next(each["about"]["classes"] for each in found if each["kind"] == "scenes"))


async def use(base, token, photos, users, spent):
    """Answers a second, how long each took, and CPU seconds for each; `spent` gives those of the server so far."""
    offers, drawn = await offers_of(base, token)
    waiting, waited = list(photos), {question: [] for question in QUESTIONS}

    async def user(most):
        async with Person(base, token) as person:
            while waiting and len(waiting) > most:
                await visit(person, offers, waiting.pop(), drawn, waited)

    await asyncio.gather(*(user(len(photos) - 4) for _ in range(4)))  # now every process is up
    waited.update({question: [] for question in QUESTIONS})
    began, cpu = time.perf_counter(), time.process_time() + spent()
    await asyncio.gather(*(user(0) for _ in range(users)))
    seconds, cpu = time.perf_counter() - began, time.process_time() + spent() - cpu
    answers = sum(map(len, waited.values()))
    return answers / seconds, waited, cpu / answers


def measure(folder, users):
    """For each network: throughput, how long each waits, memory."""
    from wayfare.scenes.scene_model import load_scene_model

    photos, found = sorted((folder / "asked").iterdir()), {}
    boxes = material.write_boxes(folder, load_scene_model(folder / "runs" / "scenes").classes)
    for network in material.networks():
        plain, plain_cpu = measure_alone(folder, network, photos, boxes)
        with serving(folder / "runs", "--index", folder / network / "index") as (base, token, server):
            spent = functools.partial(cpu_seconds, server.pid)
            served, waited, cpu = asyncio.run(use(base, token, photos, users, spent))
            memory = peak_memory(server.pid)[1]
        every = np.concatenate([np.array(each) for each in waited.values()])
        found[network] = {
            "answers": len(every), "a_second": served, "a_second_api": plain, "share": served / plain,
            "cpu_seconds": cpu, "cpu_seconds_api": plain_cpu, "cpu_share": plain_cpu / cpu,
            "seconds_p50": float(np.percentile(every, 50)), "seconds_p99": float(np.percentile(every, 99)),
            "p50_of": {question: float(np.percentile(each, 50)) for question, each in waited.items()},
            "peak_memory_bytes": memory,
        }  # fmt: skip
    return {"users": users, "cores": os.cpu_count(), "networks": found}


def targets(figures):
    rows = []
    for name, found in figures["networks"].items():
        words = {
            "CPU milliseconds for an answer, with the users'": 1000 * found["cpu_seconds"],
            "the same of the Python API alone": 1000 * found["cpu_seconds_api"],
            "throughput over the Python API alone, by CPU seconds": found["cpu_share"],
            "answers a second": found["a_second"], "seconds for an answer, median": found["seconds_p50"],
            "seconds for an answer, 99 %": found["seconds_p99"],
            "peak memory of all processes, MiB": found["peak_memory_bytes"] / 2**20,
        }  # fmt: skip
        share = target(f"{name}: throughput over the Python API alone, by the clock", found["share"], LEAST)
        rows.append(share | {"timed": True})
        rows += [target(f"{name}: {each}", value) for each, value in words.items()]
    return rows


def show(figures, console):
    console.print_json(data=figures)
