"""Ten everyday queries over real fashion photos: how many of the first ten photos are what was asked for.

Words are typed as people type them, and judged by what the shop's table says of each photo that was found: its kind,
and where the query names them its colour and its wearer. The photos are 4,000 that no model has seen, given as a folder
of pictures without any text. Three models of SHDCH with 64 bits on a frozen network learnt from the others: one that
was taught kinds alone, and cannot know colours; one that was taught kinds, colours and wearers; and the latter
federated, FedCAFE with ten devices. There is no target: it is shown.
"""

import csv
import statistics
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from rich.table import Table

from places_parts import common
from wayfare.core.seeds import rng_for
from wayfare.experiment import Experiment
from wayfare.hashing.hash_model import hashing_run
from wayfare.hashing.indexing import add, model_for, photo_files
from wayfare.hashing.search import Query, SearchIndex, search
from wayfare.io.archives import unpack

FIRST, UNSEEN = 10, 4000
KINDS, ALL = "articleType:50", "articleType:50+baseColour:50+gender:400"
MODELS = {  # labels, strategy, clients, rounds: about 480 steps of each view in all
    "kinds": (KINDS, "centralised", 1, 6),
    "kinds, colours, wearers": (ALL, "centralised", 1, 6),
    "the same, FedCAFE": (ALL, "fedcafe", 10, 20),
}


class Wanted(NamedTuple):
    """What counts as right: any of these kinds, and if given of these colours and wearers."""

    kinds: set
    colours: set = frozenset()
    wearers: set = frozenset()


SHOES = {"Casual Shoes", "Formal Shoes", "Sports Shoes", "Heels", "Flats"}
BLUE, BROWN = {"Blue", "Navy Blue"}, {"Brown", "Coffee Brown", "Tan"}
QUERIES = {
    "red shirt": Wanted({"Shirts"}, {"Red"}),
    "black shoes for women": Wanted(SHOES, {"Black"}, {"Women", "Unisex"}),
    "men's watch": Wanted({"Watches"}, wearers={"Men", "Unisex"}),
    "blue jeans": Wanted({"Jeans"}, BLUE),
    "white t-shirt": Wanted({"Tshirts"}, {"White"}),
    "brown leather belt": Wanted({"Belts"}, BROWN),
    "sunglasses": Wanted({"Sunglasses"}),
    "pink handbag": Wanted({"Handbags"}, {"Pink"}),
    "grey sweater for men": Wanted({"Sweaters"}, {"Grey", "Grey Melange", "Charcoal"}, {"Men", "Unisex"}),
    "green kurta for women": Wanted({"Kurtas", "Kurtis"}, {"Green"}, {"Women"}),
}


def experiment(table, labels, strategy, clients, rounds):
    """The settings of benchmarks at small scale, on the table of the photos."""
    return Experiment.from_table({
        "name": "everyday", "rounds": rounds,
        "data": {"name": "table", "path": str(table), "labels": labels, "text": "productDisplayName", "photo": "image"},
        "model": {"bits": 64, "text": {"hidden": 512}, "image": {"hidden": 512}},
        "task": {"name": "hashing", "base": "shdch"},
        "partition": {"name": "random", "clients": clients}, "strategy": {"name": strategy},
        "training": {"epochs": 1 if clients == 1 else 3, "batch_size": 64, "optimizer": "adam", "lr": 1e-3},
        "evaluation": {"every": rounds, "clients": 0, "holdout": 0.0},
    })  # fmt: skip


def measure(archive, out, machine):
    """For each model and query: the share of the first ten that is of the right kind, and that is right in all."""
    folder = out / "everyday"
    if not (folder / "photos").exists():
        unpack(archive, folder / "photos")
    table, facts = _parted(next((folder / "photos").rglob("pairs.csv")))
    runs = {name: experiment(table, *settings) for name, settings in MODELS.items()}
    with common.cache_in(out / "cache"):
        records, _ = common.play(runs, folder / "runs", machine, "test/MAP")
        return {
            name: {**_asked(folder / "runs" / name, folder / "indexes" / name, table, facts),
                   "MAP": records[name].final("test/MAP")}
            for name in runs
        }  # fmt: skip


def _parted(source):
    """The table of the photos of kinds with at least 50, with a column that says which are unseen; and its rows."""
    with source.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    count = Counter(row["articleType"] for row in rows)
    rows = [row for row in rows if count[row["articleType"]] >= 50]
    unseen = set(rng_for(0, "everyday").permutation(len(rows))[:UNSEEN].tolist())
    table = source.with_name("everyday.csv")
    with table.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, [*rows[0], "split"])
        writer.writeheader()
        writer.writerows({**row, "split": "query" if at in unseen else "train"} for at, row in enumerate(rows))
    return table, {row["id"]: row for row in rows}


def _asked(run, out, table, facts):
    found = hashing_run(run)
    pairs, began = found.task.pairs, time.process_time()
    place = table.parent / "unseen"  # as someone would have them: a folder of photos, and nothing else
    place.mkdir(exist_ok=True)
    for id in pairs.ids[pairs.query]:
        link = place / f"{id}.jpg"
        if not link.is_symlink():
            link.symlink_to(table.parent / facts[id]["image"])
    add(model_for(found, out), out, photo_files(place))
    made, index = time.process_time() - began, SearchIndex(out)
    answers = search(index, [Query(words) for words in QUERIES], FIRST).answers
    held = [facts[Path(id).stem] for id in index.codes["photos"].ids]
    shown = {}
    for answer in answers:
        wanted = QUERIES[answer.query.words]
        first = [facts[Path(hit.name).stem] for hit in answer.hits]
        shown[answer.query.words] = {
            "kind": _share(first, wanted._replace(colours=frozenset(), wearers=frozenset())),
            "right": _share(first, wanted), "chance": _share(held, wanted),
            "there": sum(_is_right(row, wanted) for row in held), "unknown_words": list(answer.unknown),
        }  # fmt: skip
    return {"photos": len(held), "making_cpu_seconds": made, "queries": shown}


def _share(rows, wanted):
    return statistics.fmean(_is_right(row, wanted) for row in rows)


def _is_right(row, wanted):
    return (
        row["articleType"] in wanted.kinds
        and (not wanted.colours or row["baseColour"] in wanted.colours)
        and (not wanted.wearers or row["gender"] in wanted.wearers)
    )


def targets(figures):
    return []


def show(figures, out):
    names = list(figures)
    photos = max(each["photos"] for each in figures.values())
    title = f"precision at {FIRST}, right in all that was asked (of the right kind), among {photos:,} fashion photos"
    table = Table(title=title, title_justify="left")
    for head in ("query", "right ones", "by chance", *names):
        table.add_column(head, justify="left" if head == "query" else "right")
    for words in QUERIES:
        each = [figures[name]["queries"][words] for name in names]
        cells = [f"{one['right']:.1f} ({one['kind']:.1f})" for one in each]
        table.add_row(words, str(each[-1]["there"]), f"{each[-1]['chance']:.3f}", *cells)
    means = [{key: statistics.fmean(one[key] for one in figures[name]["queries"].values())
              for key in ("right", "kind", "chance")} for name in names]  # fmt: skip
    cells = [f"{one['right']:.2f} ({one['kind']:.2f})" for one in means]
    table.add_row("mean", "", f"{means[-1]['chance']:.3f}", *cells)
    out.print(table)
    out.print("; ".join(f"{name}: MAP {each['MAP']:.3f}" for name, each in figures.items()), highlight=False)
