"""How fast relation heads are trained, beside a plain torch loop, and how fast pictures are clustered by semantics.

- training: an epoch of one device as our training loop does it, from annotations to steps, beside the loop that anyone
  would write over batches that are ready in memory: forward, cross-entropy, backward, clipping, SGD. The same batches
  of 16 pictures and the same weights, so that the losses must agree. By turns in one process with one thread, CPU
  seconds: medians, and for the speed the median of what each two neighbours give, since a busy machine changes its
  speed from one second to the next. The share of preparing batches is told as well.
- judging: R@K and mR@K of 2,000 pictures, with and without graph constraint, the network included.
- clusters: category tensors of all pictures, the file's reading included, and K-means with ten starts.

On the union of the paper's splits where it is there, on the town's pictures where not and with --quick; then clusters
are not judged.
"""

import statistics
import tempfile
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from rich.table import Table

from scenes_parts.metrics import SHARED
from wayfare import Experiment, Training
from wayfare.core.bundle import Bundle
from wayfare.core.seeds import rng_for
from wayfare.partition.random import Random
from wayfare.partition.semantic import Semantic
from wayfare.scenes.data.scene_data import PsgScenes, TownScenes
from wayfare.scenes.models import GPSNetModel, ImpModel, MotifsModel, VCTreeModel
from wayfare.scenes.task import Scenes

HEADS = {"imp": ImpModel, "motifs": MotifsModel, "vctree": VCTreeModel, "gpsnet": GPSNetModel}
PICTURES, JUDGED, QUICK_JUDGED, TURNS, QUICK_TURNS = 160, 2000, 60, 21, 2
LEAST, MOST_SECONDS, MOST_PREPARING = 0.9, 15.0, 0.1
TRAINING = Training(batch_size=16, lr=0.02, momentum=0.9, weight_decay=1e-4, clip=35.0)


def whole_task(quick):
    """The real pictures with their super-classes, or the town's, as with --quick; and whether they are real."""
    file, groups = SHARED / "psg_union_24378.json.gz", SHARED / "word_categorized.json"
    real = not quick and file.is_file() and groups.is_file()
    town = TownScenes(size="tiny", test=20) if quick else TownScenes(test=100)
    data = PsgScenes(path=str(file), super_classes=str(groups)) if real else town
    return Scenes(data=data), real


def with_head(task, head):
    """The same task with another head."""
    return replace(task, model=HEADS[head]())


# ---- training


def training(task, quick):
    """CPU seconds of an epoch for each head: ours, the plain loop, and what preparing batches takes of ours."""
    return {head: _epoch(with_head(task, head), QUICK_TURNS if quick else TURNS) for head in HEADS}


def _epoch(task, turns):
    with tempfile.TemporaryDirectory() as folder:
        bench = Experiment(task=task, partition=Random(1), training=TRAINING).bench(Path(folder))
        device = bench.device(bench.population.id(0), 1, 0)
        device.hold(device.client.train[:PICTURES])
        net, client = bench.net(0), device.client

        def prepared():
            return list(task.steps(net, client, TRAINING.batch_size, {}, device.rng("pass 0")))

        batches = [batch.inputs for batch in prepared()]
        seconds = {"plain": [], "ours": [], "preparing": []}
        for _ in range(turns + 1):  # the first time is not counted: caches are filled
            device.network(bench.initial)
            took, expected = _timed(lambda: _plain_epoch(net, batches))
            seconds["plain"].append(took)
            device.network(bench.initial)
            took, found = _timed(lambda: device.train(net, Bundle()))
            seconds["ours"].append(took)
            seconds["preparing"].append(_timed(prepared)[0])
    middle = {name: statistics.median(values[1:]) for name, values in seconds.items()}
    ratios = [plain / ours for plain, ours in zip(seconds["plain"][1:], seconds["ours"][1:])]
    return {
        **middle,
        "ratio": statistics.median(ratios),
        "ratios": ratios,
        "share_preparing": middle["preparing"] / middle["ours"],
        "losses_differ_by": abs(expected - found["loss"]),
        "steps": len(batches),
        "pairs_per_step": sum(len(graphs.pairs) for graphs in batches) / len(batches),
    }


def _plain_epoch(net, batches):
    """The mean loss."""
    net.train()
    optimizer = torch.optim.SGD(
        net.parameters(), TRAINING.lr, momentum=TRAINING.momentum, weight_decay=TRAINING.weight_decay
    )
    total = torch.zeros(())
    for graphs in batches:
        said = net(graphs)
        loss = torch.nn.functional.cross_entropy(said.predicates, graphs.targets)
        if said.extra is not None:
            loss = loss + said.extra
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), TRAINING.clip)
        optimizer.step()
        total += loss.detach()
    return float(total) / len(batches)


def _timed(work):
    began = time.process_time()
    result = work()
    return time.process_time() - began, result


# ---- judging and clusters


def judging(task, quick):
    """CPU seconds in which each head's guesses for so many pictures are made and judged."""
    rows = rng_for(0, "judged").permutation(task.samples)[: QUICK_JUDGED if quick else JUDGED]
    seconds = {}
    for head in HEADS:
        other = with_head(task, head)
        net = other.network().eval()
        other.evaluate(net, rows[:32])
        seconds[head] = _timed(partial(other.evaluate, net, rows))[0]
    return {"pictures": len(rows), "seconds": seconds}


def clusters(task):
    """CPU seconds of tensors and of K-means, of all pictures to train on."""
    tensors, found = _timed(lambda: task.source("categories"))
    means, _ = _timed(lambda: Semantic(100).find(found, 0))
    return {"pictures": task.samples, "tensors": tensors, "k_means": means, "seconds": tensors + means}


# ---- the part


def measure(quick):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        task, real = whole_task(quick)
        whole = replace(task, data=replace(task.data, test=1))  # all pictures but one
        found = {"clusters": clusters(whole if real else task), "training": training(task, quick)}
        return {"data": "real annotations" if real else "the town", **found, "judging": judging(task, quick)}
    finally:
        torch.set_num_threads(threads)


def targets(figures):
    from places_parts.common import at_least, at_most

    judged = []
    for head, found in figures["training"].items():
        judged.append(at_least(f"training {head}: speed beside a plain torch loop", found["ratio"], LEAST, timed=True))
        share = found["share_preparing"]
        judged.append(at_most(f"training {head}: share of preparing batches", share, MOST_PREPARING, timed=True))
        judged.append(at_most(f"training {head}: difference of the losses", found["losses_differ_by"], 1e-5))
    if figures["data"] == "real annotations":
        found = figures["clusters"]
        name = f"category tensors and K-means of {found['pictures']:,} pictures: CPU seconds"
        judged.append(at_most(name, found["seconds"], MOST_SECONDS, timed=True))
    return judged


def show(figures, out):
    steps = next(iter(figures["training"].values()))["steps"]
    title = f"training a relation head on {figures['data']}, CPU ms per step of 16 pictures ({steps} steps)"
    table = Table(title=title, title_justify="left")
    for name in ("", "plain torch loop", "ours", "speed", "preparing", "judging, s"):
        table.add_column(name, justify="right" if name else "left")
    for head, found in figures["training"].items():
        times = [f"{1000 * found[name] / found['steps']:.1f}" for name in ("plain", "ours")]
        share, judged = f"{100 * found['share_preparing']:.1f} %", figures["judging"]["seconds"][head]
        table.add_row(head, *times, f"{found['ratio']:.2f}", share, f"{judged:.2f}")
    out.print(table)
    found = figures["clusters"]
    out.print(
        f"judging: {figures['judging']['pictures']:,} pictures. Clusters of {found['pictures']:,} pictures: "
        f"tensors {found['tensors']:.2f} s, K-means {found['k_means']:.2f} s"
    )
