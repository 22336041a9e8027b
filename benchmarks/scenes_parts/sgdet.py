"""Tab. 1 as scene graph detection, on the town: objects and masks are found by `wayfare detect`, not given.

The layer on DINOv2's features is learnt from 150 of the pictures to train on, with their panoptic truth, and then finds
things and surfaces in all pictures: no test picture has taught it anything. A guess is right if both objects have the
classes of annotated ones and half of their masks, as in the paper's code. Each run's baseline is beside it. Tables are
shown, not judged: the town is drawn, and the paper's numbers are about photographs.
"""

import numpy as np
import torch
from rich.table import Table

from places_parts import common
from scenes_parts.tables import BIASED, COLUMNS, HEADS, RECIPES, chosen, seeded
from wayfare.core.protocols import silent
from wayfare.io.images import decode
from wayfare.nets.published import PUBLISHED
from wayfare.papers.paper import Scale
from wayfare.papers.plan import read_plan
from wayfare.scenes import detections
from wayfare.scenes.data.scene_data import TownScenes
from wayfare.scenes.patches import DinoPatches
from wayfare.scenes.segment_files import SegmentFiles
from wayfare.scenes.segmenting import PanopticFinder, learn_head

LEARNT_FROM = 150  # pictures
LONG_SIDE = 322  # pixels, enlarged for DINOv2: the town's have 128
METRICS = ("R@20", "mR@20")


def is_here():
    return PUBLISHED["dinov2-s"].path.is_file()


def measure(quick, seeds, out, workers, only=frozenset()):
    """Objects found in the test pictures, and by cell (those in `only`, or all) the values of all seeds, per cent."""
    town = TownScenes(size="tiny" if quick else "small", test=20 if quick else TownScenes.test)
    file = _detections(town, out / f"found-{town.size}")
    records, failed = common.play(_experiments(town, file, quick, seeds, only), out / "sgdet", workers, "test/mR@20")
    cells = {}
    for run, record in records.items():
        cell = cells.setdefault(run.partition("/")[0], {name: [] for name in (*METRICS, *_floors())})
        for name, values in cell.items():
            values.append(100 * record.final(f"test/{name}"))
    return {"found": _found(town, file), "cells": cells, "failed": failed, "seeds": seeds}


def _floors():
    return [f"frequency {name}" for name in METRICS]


def _experiments(town, file, quick, seeds, only):
    changes = {"data.size": town.size, "data.test": town.test, "task.mode.name": "sgdet",
               "task.mode.detections": str(file), "task.mode.overlap": "masks"}  # fmt: skip
    changes |= {"partition.clients": 5, "rounds": 2} if quick else {}
    cells = {}
    for recipe, end in (("table1", ""), ("table1-bias", BIASED)):
        plan = read_plan(RECIPES / f"{recipe}.toml", Scale.small, None, changes)
        cells |= {name + end: experiment for name, experiment in plan.experiments.items()}
    if quick:
        cells = {name: cells[name] for name in ("imp-shard", "motifs-shard-bias")}
    return seeded(chosen(cells, only), seeds)


def _detections(town, folder):
    """What is found in all pictures; made once."""
    file = folder / "detections.json"
    if file.exists():
        return file
    graphs = town.load(silent)
    train = np.flatnonzero(~town.is_test(graphs))
    maps = DinoPatches(LONG_SIDE)
    head = learn_head(graphs.select(train[:LEARNT_FROM]), maps, lambda done, total: None)
    finder, files = PanopticFinder(head, maps), SegmentFiles(folder, head)
    for index in range(len(graphs)):
        photo = graphs.picture(index)
        files.add(photo, finder.find(decode(photo)))
    files.finish()
    return file


def _found(town, file):
    """How many of the test pictures' objects are found: class and half of the mask."""
    graphs = town.load(silent)
    test = graphs.select(np.flatnonzero(town.is_test(graphs)))
    found = detections.read(file, test)
    overlaps = detections.mask_overlaps(found.found, test)
    ours, theirs = detections.crossed(found.found.object_offsets, test.object_offsets).T
    same = (overlaps >= detections.MATCH) & (found.found.labels[ours] == test.labels[theirs])
    hit = np.zeros(len(test.labels), bool)
    hit[theirs[same]] = True
    ends = test.relations[:, :2] + test.object_offsets[test.relation_images][:, None]
    return {"pictures": len(test), "objects found": 100 * float(hit.mean()),
            "reachable triplets": 100 * float(hit[ends].all(1).mean())}  # fmt: skip


def targets(figures):
    """Shown beside the baseline, not judged: what is found in drawings says nothing about photographs."""
    rows = [_shown(f"SGDet on the town: {name}, %", value) for name, value in figures["found"].items()]
    for column, words in COLUMNS.items():
        for end, how in (("", "as run"), (BIASED, "with bias")):
            cells = {label: figures["cells"].get(f"{head}-{column}{end}") for head, label in HEADS.items()}
            there = {label: cell for label, cell in cells.items() if cell is not None}
            if there:
                name = f"SGDet on the town, {words}, {how}: R@20 / mR@20 of {', '.join(there)}; the baseline"
                values = [_pair(cell, "") for cell in there.values()]
                rows.append(_shown(name, ", ".join(values) + "; " + _pair(next(iter(there.values())), "frequency ")))
    return rows


def _shown(name, value):
    return {"name": name, "value": value, "target": "", "met": None}


def show(figures, out):
    out.print(", ".join(f"{name} {value:.1f}" for name, value in figures["found"].items()), highlight=False)
    for title, end in (("Tab. 1 in SGDet on the town, as run", ""), ("with bias", BIASED)):
        table = Table(title=f"{title}: R / mR @20, per cent; ± over {figures['seeds']} seeds", title_justify="left")
        for head in ("", *COLUMNS.values()):
            table.add_column(head, justify="right" if head else "left")
        for head, label in HEADS.items():
            table.add_row(label, *(_pair(figures["cells"].get(f"{head}-{column}{end}"), "") for column in COLUMNS))
        floor = (_pair(figures["cells"].get(f"motifs-{column}{end}"), "frequency ") for column in COLUMNS)
        table.add_row("frequency baseline", *floor)
        out.print(table)
    for run, why in figures["failed"].items():
        out.print(f"{run} ended early: {why}", highlight=False, soft_wrap=True)


def _pair(cell, kind):
    if cell is None:
        return ""
    return " / ".join(common.plus_minus(common.spread(cell[f"{kind}{name}"])) for name in METRICS)


torch.set_num_threads(1)
