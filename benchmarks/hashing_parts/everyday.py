"""Everyday queries over real fashion photos: how many of the first ten photos are what was asked for.

Words are typed as people type them, and judged by what the shop's table says of each photo that was found: its kind,
and where the query names them its colour and its wearer. The photos are 4,000 that no model has seen, given as a folder
of pictures without any text. Ten queries, and 33 further ones that were written before any model was judged by them;
precision is the share of right ones among the first ten, or among as many as there are right ones. Four models learnt
from the other photos: SHDCH with 64 bits on a frozen EfficientNet-Lite0, taught kinds alone, which cannot know colours;
taught kinds, colours and wearers; the latter federated, FedCAFE with ten devices; and recipes/search.toml with DINOv2,
MiniLM and 128 bits, federated over ten devices, if these encoders have been fetched (`wayfare data get`). Its settings
were chosen on photos that are among those to learn from.
"""

import csv
import statistics
import time
import tomllib
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
from wayfare.nets.published import PUBLISHED

FIRST, UNSEEN = 10, 4000
KINDS, ALL = "articleType:50", "articleType:50+baseColour:50+gender:400"
MODELS = {  # labels, strategy, clients, rounds: about 480 steps of each view in all
    "kinds": (KINDS, "centralised", 1, 6),
    "kinds, colours, wearers": (ALL, "centralised", 1, 6),
    "the same, FedCAFE": (ALL, "fedcafe", 10, 20),
}
ENCODERS, OURS = ("dinov2-s", "minilm"), "DINOv2 + MiniLM"
LEAST, LEAST_FURTHER = 0.85, 0.7
RECIPE = Path(__file__).resolve().parents[2] / "recipes" / "search.toml"


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
BAGS = {"Handbags", "Backpacks"}
MEN, WOMEN = {"Men", "Unisex"}, {"Women", "Unisex"}
FURTHER = {
    "bags": Wanted(BAGS), "backpack for school": Wanted({"Backpacks"}), "red shrit": Wanted({"Shirts"}, {"Red"}),
    "black leather wallet": Wanted({"Wallets"}, {"Black"}), "sneakers": Wanted({"Casual Shoes", "Sports Shoes"}),
    "running shoes": Wanted({"Sports Shoes"}), "high heels": Wanted({"Heels"}), "flip flops": Wanted({"Flip Flops"}),
    "sandals for men": Wanted({"Sandals"}, wearers=MEN), "office shoes for men": Wanted({"Formal Shoes"}, wearers=MEN),
    "silver watch": Wanted({"Watches"}, {"Silver", "Steel"}), "ladies watch": Wanted({"Watches"}, wearers=WOMEN),
    "dark glasses": Wanted({"Sunglasses"}), "checked shirt": Wanted({"Shirts"}),
    "blue shirt for men": Wanted({"Shirts"}, {"Blue", "Navy Blue", "Teal", "Turquoise Blue"}, MEN),
    "purple top": Wanted({"Tops"}, {"Purple", "Lavender", "Mauve"}), "black tee": Wanted({"Tshirts"}, {"Black"}),
    "yellow t-shirt": Wanted({"Tshirts"}, {"Yellow", "Mustard"}), "polo": Wanted({"Tshirts"}),
    "jeans for women": Wanted({"Jeans"}, wearers=WOMEN), "trousers": Wanted({"Trousers"}),
    "shorts for men": Wanted({"Shorts"}, wearers=MEN), "track pants": Wanted({"Track Pants"}),
    "warm jacket": Wanted({"Jackets"}), "pullover": Wanted({"Sweaters", "Sweatshirts"}),
    "hoodie": Wanted({"Sweatshirts"}), "baseball cap": Wanted({"Caps"}), "socks": Wanted({"Socks"}),
    "underwear for men": Wanted({"Briefs", "Innerwear Vests"}, wearers=MEN), "vest": Wanted({"Innerwear Vests"}),
    "tie": Wanted({"Ties"}), "kurti": Wanted({"Kurtis", "Kurtas"}),
    "flat shoes for women": Wanted({"Flats"}, wearers=WOMEN),
}  # fmt: skip

SETS = {"queries": QUERIES, "further": FURTHER}


def ours(table):
    """The recipe for one's own photos, with the fetched encoders."""
    settings = tomllib.loads(RECIPE.read_text(encoding="utf-8"))
    settings.pop("about")
    settings["data"] |= {"path": str(table), "labels": ALL, "text": "productDisplayName", "photo": "image"}
    settings["model"] = {"bits": 128, "image": {"name": "dinov2-s", "colours": True}, "text": "minilm"}
    return Experiment.from_table({"name": "everyday", **settings})


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
    table, facts = table_of(archive, folder)
    runs = {name: experiment(table, *settings) for name, settings in MODELS.items()}
    if bring_encoders(out / "cache"):
        runs[OURS] = ours(table)
    with common.cache_in(out / "cache"):
        records, _ = common.play(runs, folder / "runs", machine, "test/MAP")
        return {
            name: {**_asked(folder / "runs" / name, folder / "indexes" / name, table, facts),
                   "MAP": records[name].final("test/MAP"), "R@10": records[name].final("test/R@10")}
            for name in runs
        }  # fmt: skip


def bring_encoders(cache):
    """Whether the encoders have been fetched; then they are linked into the benchmark's cache."""
    files = [PUBLISHED[name].path.resolve() for name in ENCODERS]
    if not all(file.is_file() for file in files):
        return False
    (cache / "weights").mkdir(parents=True, exist_ok=True)
    for file in files:
        link = cache / "weights" / file.name
        if not link.exists():
            link.symlink_to(file)
    return True


def table_of(archive, folder):
    """The photos, unpacked, and `parted`."""
    if not (folder / "photos").exists():
        unpack(archive, folder / "photos")
    return parted(next((folder / "photos").rglob("pairs.csv")))


def parted(source):
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
    began = time.process_time()
    index = index_of(run, out, unseen_photos(table, facts))
    made = time.process_time() - began
    held = [facts[Path(id).stem] for id in index.codes["photos"].ids]
    found = {name: judged(index, queries, held, facts) for name, queries in SETS.items()}
    return {"photos": len(held), "making_cpu_seconds": made, **found}


def unseen_photos(table, facts):
    """As someone would have them: a folder of photos, and nothing else."""
    place = table.parent / "unseen"
    place.mkdir(exist_ok=True)
    with table.open(encoding="utf-8", newline="") as file:
        ids = [row["id"] for row in csv.DictReader(file) if row["split"] == "query"]
    for id in ids:
        link = place / f"{id}.jpg"
        if not link.is_symlink():
            link.symlink_to(table.parent / facts[id]["image"])
    return place


def index_of(run, out, photos):
    """An index of a folder of photos, made with a run's model."""
    add(model_for(hashing_run(run), out), out, photo_files(photos))
    return SearchIndex(out)


def judged(index, queries, held, facts):
    """Of each query, refused ones included."""
    done = search(index, [Query(words) for words in queries], FIRST)
    shown = {
        item.file: {"kind": 0.0, "right": 0.0, "there": 0, "chance": 0.0, "refused": True} for item in done.refused
    }
    for answer in done.answers:
        wanted = queries[answer.query.words]
        first = [facts[Path(hit.name).stem] for hit in answer.hits]
        shown[answer.query.words] = {
            "kind": _share(first, held, wanted._replace(colours=frozenset(), wearers=frozenset())),
            "right": _share(first, held, wanted), "chance": statistics.fmean(_is_right(row, wanted) for row in held),
            "there": sum(_is_right(row, wanted) for row in held), "read_as": dict(answer.read_as), "refused": False,
        }  # fmt: skip
    return {words: shown[words] for words in queries}


def _share(rows, held, wanted):
    most = min(len(rows), sum(_is_right(row, wanted) for row in held))
    return sum(_is_right(row, wanted) for row in rows) / max(1, most)


def _is_right(row, wanted):
    return (
        row["articleType"] in wanted.kinds
        and (not wanted.colours or row["baseColour"] in wanted.colours)
        and (not wanted.wearers or row["gender"] in wanted.wearers)
    )


def targets(figures):
    if OURS not in figures:
        return []
    from places_parts.common import at_least, at_most

    mean, refused = _means(figures[OURS]), sum(one["refused"] for one in figures[OURS]["further"].values())
    return [
        at_least(f"precision at {FIRST} of the ten everyday queries, federated", mean["queries"], LEAST),
        at_least(f"precision at {FIRST} of the 33 further queries, federated", mean["further"], LEAST_FURTHER),
        at_most("further queries that are refused", refused, 0),
    ]


def _means(figures):
    return {name: statistics.fmean(one["right"] for one in figures[name].values()) for name in SETS}


def show(figures, out):
    names = list(figures)
    photos = max(each["photos"] for each in figures.values())
    for kind in SETS:
        title = (
            f"precision at {FIRST}, right in all that was asked (of the right kind), among {photos:,} fashion photos"
        )
        table = Table(title=title, title_justify="left")
        for head in ("query", "right ones", "by chance", *names):
            table.add_column(head, justify="left" if head == "query" else "right")
        for words in SETS[kind]:
            each = [figures[name][kind][words] for name in names]
            cells = ["refused" if one["refused"] else f"{one['right']:.1f} ({one['kind']:.1f})" for one in each]
            table.add_row(words, str(each[-1]["there"]), f"{each[-1]['chance']:.3f}", *cells)
        table.add_row("mean", "", "", *(f"{_means(figures[name])[kind]:.2f}" for name in names))
        out.print(table)
    out.print("; ".join(f"{name}: MAP {each['MAP']:.3f}, R@10 {each['R@10']:.3f}" for name, each in figures.items()),
              highlight=False)  # fmt: skip
