"""The town: how fast it is made, and whether it is a fair test.

    python benchmarks/town.py [--quick] [--json]

Makes a town and reads it back through the loaders that also read the real data sets, then prints
- photos per second per core at 96x128 with all truth and files, and the seconds that `small` takes on all cores;
- a floor for place recognition (nearest neighbour by HOG, within 25 m) beside chance, and where the wrong ones lie;
- how long the tail of the predicates is, and what guessing the predicate from the two labels alone gives;
- what tags tell about labels;
- how often, how long and after what time walkers meet, beside the same figures of recorded traces, if there are any in
  $WAYFARE_SHARED/data/traces (default ../shared).
Exit status 1 when a target is missed. With --quick speed, and HOG beside chance, are shown, but not judged.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score

from figures import target
from wayfare.encounters import traces
from wayfare.hashing.data import mirflickr
from wayfare.io.images import decode
from wayfare.places.data import msls
from wayfare.scenes.data import psg
from wayfare.town.make import CHUNK, Spec, Town, jpeg, layout, make

note = Console(stderr=True)
MARKS = {True: "[green]met[/green]", False: "[red]MISSED[/red]", None: "[yellow]not judged[/yellow]"}
RADIUS = 25.0  # metres: within, it is the same place
NEIGHBOURHOOD = 50.0
RATES = {"contacts_per_device_hour", "duration_median", "duration_p90", "pause_median", "pause_p90", "pairs_that_meet"}


# ---- speed


def speed(photos):
    """Photographs per second of one core: drawn, with all their truth, as JPEGs; and with their files on the disk.

    They are taken as the town's processes do it, a chunk at a time, but from all over the town.
    """
    town = Town(Spec("small"))
    chosen = range(0, len(town.shots), len(town.shots) // photos)[:photos]
    others = range(3, len(town.shots), len(town.shots) // 400)
    town.take_all([index for index in others if index not in chosen])  # what is drawn once: facades, people, trees
    made, files = 0.0, 0.0
    with tempfile.TemporaryDirectory() as place:
        for first in range(0, photos, CHUNK):
            began = time.process_time()
            taken = town.take_all(chosen[first : first + CHUNK])
            data = [jpeg(photo) for photo in taken]
            middle = time.process_time()
            for name in town.spec.layouts:
                folder, stage = Path(place) / name, Path(place) / "stage" / name
                for number, photo in enumerate(taken):
                    if layout(name).wants(photo.shot):
                        layout(name).take(folder, stage, first + number, photo, data[number])
            made += middle - began
            files += time.process_time() - middle
    return {"photos_per_second": photos / made, "with_files": photos / (made + files)}


# ---- (a), (b) places


def hog(pixels, cell=8, bins=9):
    """Histograms of oriented gradients, normalised over blocks of 2 x 2 cells."""
    grey = pixels.astype(np.float32).mean(2)
    down, right = np.gradient(grey)
    size = np.hypot(down, right)
    angle = (np.arctan2(down, right) % np.pi) * bins / np.pi
    rows, columns = grey.shape[0] // cell, grey.shape[1] // cell
    place = np.arange(grey.shape[0])[:, None] // cell * columns + np.arange(grey.shape[1]) // cell
    low = np.floor(angle).astype(int) % bins
    part = angle - np.floor(angle)
    cells = np.bincount((place * bins + low).ravel(), (size * (1 - part)).ravel(), rows * columns * bins)
    cells += np.bincount((place * bins + (low + 1) % bins).ravel(), (size * part).ravel(), rows * columns * bins)
    cells = cells.reshape(rows, columns, bins)
    blocks = np.concatenate([cells[:-1, :-1], cells[:-1, 1:], cells[1:, :-1], cells[1:, 1:]], axis=2)
    blocks /= np.linalg.norm(blocks, axis=2, keepdims=True) + 1e-6
    return (np.minimum(blocks, 0.2)).ravel()


def places(folder):
    """Nearest neighbour by HOG in each city; chance is a photo drawn from the city's database."""
    photos = msls.load(folder)
    features = np.stack([hog(decode(path, size=(96, 128))) for path in photos.paths()])
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    position = np.stack([photos.easting, photos.northing], 1)
    right, chance, near_wrong, near_chance, errors = [], [], [], [], []
    for group in range(len(photos.groups)):
        queries = np.flatnonzero((photos.group == group) & photos.query)
        database = np.flatnonzero((photos.group == group) & ~photos.query)
        if not len(queries) or not len(database):
            continue
        apart = np.linalg.norm(position[queries, None] - position[database], axis=2)
        best = (features[queries] @ features[database].T).argmax(1)
        error = apart[np.arange(len(queries)), best]
        known = (apart <= RADIUS).any(1)  # a query without a photo of the same place says nothing
        right += list((error <= RADIUS)[known])
        chance += list((apart <= RADIUS).mean(1)[known])
        wrong = known & (error > RADIUS)
        near_wrong += list((error <= NEIGHBOURHOOD)[wrong])
        beyond = apart > RADIUS
        near_chance += list(((apart <= NEIGHBOURHOOD) & beyond).sum(1)[wrong] / beyond.sum(1)[wrong])
        errors += list(error[known])
    return {
        "queries": len(right),
        "hog_recall_at_1": float(np.mean(right)),
        "chance_recall_at_1": float(np.mean(chance)),
        "median_error_m": float(np.median(errors)),
        "wrong_within_50_m": float(np.mean(near_wrong)),
        "chance_within_50_m": float(np.mean(near_chance)),
    }


# ---- (c) relations


def relations(folder):
    """The tail of the predicates; and guessing the commonest predicate of the two labels, on pictures not seen."""
    graphs = psg.load(folder)
    counts = np.bincount(graphs.relations[:, 2], minlength=len(graphs.predicates))
    labels = graphs.labels[graphs.object_offsets[graphs.relation_images][:, None] + graphs.relations[:, :2]]
    held_out = graphs.relation_images % 5 == 0
    seen = {}
    for (subject, object_), predicate in zip(labels[~held_out].tolist(), graphs.relations[~held_out, 2].tolist()):
        seen.setdefault((subject, object_), []).append(predicate)
    commonest = {pair: np.bincount(found).argmax() for pair, found in seen.items()}
    head = counts.argmax()
    guesses = np.array([commonest.get(pair, head) for pair in map(tuple, labels[held_out].tolist())])
    truth = graphs.relations[held_out, 2]
    recalls = [np.mean(guesses[truth == predicate] == predicate) for predicate in np.unique(truth)]
    used = counts[counts > 0]
    return {
        "pictures": len(graphs),
        "objects_per_picture": len(graphs.labels) / len(graphs),
        "relations_per_picture": len(graphs.relations) / len(graphs),
        "predicates_used": len(used),
        "head": graphs.predicates[head],
        "head_to_tail": float(used.max() / used.min()),
        "guess_by_labels": float(np.mean(guesses == truth)),
        "guess_by_labels_mean_recall": float(np.mean(recalls)),
        "guess_always_head": float(np.mean(truth == head)),
    }


# ---- (d) tags


def tags(folder):
    """Labels from tags by logistic regression, on photos not seen; chance is the mean of both answers being right."""
    pairs = mirflickr.load(folder, min_count=5)
    held_out = np.arange(len(pairs.labels)) % 5 == 0
    words, labels = np.zeros((len(pairs), len(pairs.vocabulary)), np.float32), pairs.labels
    words[np.repeat(np.arange(len(pairs)), np.diff(pairs.tag_offsets)), pairs.tags] = 1
    accuracy, chance, f1, f1_chance = [], [], [], []
    rng = np.random.default_rng(0)
    for column in range(labels.shape[1]):
        train, test = labels[~held_out, column], labels[held_out, column]
        if not 0.02 < train.mean() < 0.98 or not 0 < test.mean() < 1:
            continue
        model = LogisticRegression(max_iter=300, class_weight="balanced").fit(words[~held_out], train)
        guessed, drawn = model.predict(words[held_out]), rng.random(len(test)) < train.mean()
        accuracy.append(np.mean((guessed == test)[test]) / 2 + np.mean((guessed == test)[~test]) / 2)
        chance.append(0.5)
        f1.append(f1_score(test, guessed))
        f1_chance.append(f1_score(test, drawn, zero_division=0.0))
    return {
        "photos": len(labels),
        "labels_judged": len(accuracy),
        "tags_per_photo": float(words.sum(1).mean()),
        "balanced_accuracy": float(np.mean(accuracy)),
        "chance": float(np.mean(chance)),
        "macro_f1": float(np.mean(f1)),
        "macro_f1_chance": float(np.mean(f1_chance)),
    }


# ---- (e) contacts


def contacts(folder):
    """The same statistics of the town's walkers and of recorded ones."""
    ours = [traces.contact_statistics(traces.load(file)) for file in sorted(folder.glob("*.csv"))]
    result = {"town": {key: float(np.mean([each[key] for each in ours])) for key in ours[0]}}
    shared = Path(os.environ.get("WAYFARE_SHARED", Path(__file__).resolve().parents[2] / "shared")) / "data" / "traces"
    if (shared / "kaist.zip").exists():
        recorded = traces.contact_statistics(traces.load(shared / "kaist.zip"))
        result["kaist"] = {key: float(value) for key, value in recorded.items()}
    return result


# ---- targets


SPEED = "photos per second per core, with all truth"
OVER_CHANCE, NEIGHBOURS = "HOG recall@1 over chance", "wrong neighbours within 50 m, over chance"
FULL_ONLY = {SPEED, OVER_CHANCE, NEIGHBOURS}  # a tiny city is hardly wider than the distances that these count


def judge(figures, quick):
    """What is claimed: (label, figure, at least, at most). "met" is None of those that --quick does not judge."""
    places_, relations_, tags_ = figures["places"], figures["relations"], figures["tags"]
    rows = [
        (SPEED, figures["speed"]["photos_per_second"], 100, None),
        (OVER_CHANCE, places_["hog_recall_at_1"] / places_["chance_recall_at_1"], 2.0, None),
        ("HOG recall@1", places_["hog_recall_at_1"], None, 0.60),
        (NEIGHBOURS,
         places_["wrong_within_50_m"] / places_["chance_within_50_m"], 2.0, None),
        ("head predicate over tail", relations_["head_to_tail"], 50, None),
        ("predicate guessed from the two labels", relations_["guess_by_labels"], None, 0.85),
        ("labels from tags, balanced accuracy", tags_["balanced_accuracy"], tags_["chance"] + 0.05, 0.95),
    ]  # fmt: skip
    if "seconds_small" in figures:
        rows.append(("seconds for small", figures["seconds_small"], None, 60))
    kaist = figures["contacts"].get("kaist", {})
    rows += [
        (f"{key}: town over KAIST", figures["contacts"]["town"][key] / value, 0.2, 5.0)
        for key, value in kaist.items()
        if key in RATES
    ]
    return [
        {"target": label, "figure": figure, "least": least, "most": most,
         "met": None if quick and label in FULL_ONLY else _is_met(figure, least, most)}
        for label, figure, least, most in rows
    ]  # fmt: skip


def _is_met(figure, least, most):
    return (least is None or figure >= least) and (most is None or figure <= most)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="under a minute: a tiny town")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--town", type=Path, help="judge this town instead of making one")
    args = parser.parse_args()
    figures = {"speed": speed(100 if args.quick else 400)}
    note.print(f"{figures['speed']['photos_per_second']:.0f} photos per second per core", highlight=False)
    with tempfile.TemporaryDirectory() as place:
        folder = args.town or Path(place) / "town"
        if not args.town:
            began = time.perf_counter()
            make(folder, Spec("tiny" if args.quick else "small"))
            if not args.quick:
                figures["seconds_small"] = time.perf_counter() - began
        for name, measured in (
            ("places", lambda: places(folder / "msls")),
            ("relations", lambda: relations(folder / "psg")),
            ("tags", lambda: tags(folder / "mirflickr")),
            ("contacts", lambda: contacts(folder / "traces")),
        ):
            note.print(f"measuring {name}", highlight=False)
            figures[name] = measured()
    if "kaist" not in figures["contacts"]:
        note.print("[yellow]left out: recorded traces[/yellow] there are none in $WAYFARE_SHARED/data/traces")
    targets = judge(figures, args.quick)
    met = all(row["met"] is not False for row in targets)
    if args.json:
        rows = [target(row["target"], row["figure"], row["least"], row["most"]) for row in targets]
        print(json.dumps({"quick": args.quick, "figures": figures, "targets": rows, "met": met}))
    else:
        out = Console()
        out.print_json(json.dumps(figures))
        for row in targets:
            mark = MARKS[row["met"]]
            bounds = " and ".join(
                f"{word} {row[key]:g}"
                for word, key in (("at least", "least"), ("at most", "most"))
                if row[key] is not None
            )
            out.print(f"{mark}  {row['target']}: {row['figure']:.3g} ({bounds})", highlight=False)
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
