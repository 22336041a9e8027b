"""Speed of place recognition, as ratios within one run, in CPU seconds of one thread: the machine may be busy.

Maps of the frozen layers are kept by default, where they fit (`data.cache`): for small data sets, not for all of MSLS.
Both are measured. Mining's targets are for the default, maps that are kept; without, its shares are printed only.
"""

import statistics
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import numpy as np
import torch
from rich.table import Table

from places_parts.common import at_least, at_most, cache_in, cpu_seconds, note
from places_parts.large import locating, split
from wayfare import Evaluation, Experiment, Training
from wayfare.core.bundle import Bundle
from wayfare.core.seeds import rng_for, seed_for
from wayfare.io.decoded import Decoded
from wayfare.partition.random import Random
from wayfare.places import task as places
from wayfare.places.backbones import LiteBackbone, ResNet18Layer3
from wayfare.places.data.place_photos import PlacePhotos, text_column
from wayfare.places.data.town import TownPhotos
from wayfare.places.feature_maps import FeatureMaps
from wayfare.places.mining import PartialMiner
from wayfare.places.model import PlaceModel
from wayfare.places.samples import PlaceSamples
from wayfare.places.task import Places

NETWORKS = {
    "efficientnet_lite0": LiteBackbone(),
    "resnet18_layer3": ResNet18Layer3(),
}  # the task's default, and the paper's
QUERIES = 1000  # what mining's defaults, a pool and a cache of 1,000, are made for
STEP, LR = 2, 1e-5  # triplets, and the learning rate: as in the paper
SEARCH, WHOLE = 0.02, 0.2  # of a local epoch, at most
APART = 10_000.0  # metres between two copies of the town


# ---- what is worked on


def _client(town, queries, database):
    """A table of about so many photographs of a town, and its pictures; all queries can be trained on.

    Copies of the town lie far from each other and are noisy: equal ones would be the worst case of an exact search.
    """
    photos, images = town
    near = photos.positives(25.0)
    ask = np.flatnonzero(photos.query)[[len(rows) > 0 for rows in near]]
    positives = np.unique([rows[0] for rows in near if len(rows)])
    others = np.setdiff1d(np.flatnonzero(~photos.query), positives)
    known = np.concatenate((positives, others))[: max(len(positives), round(len(ask) * database / queries))]
    copy = np.arange(-(-queries // len(ask)))
    rows = np.concatenate((np.tile(ask, len(copy))[:queries], np.tile(known, len(copy))))
    offset = APART * np.concatenate((np.repeat(copy, len(ask))[:queries], np.repeat(copy, len(known))))
    noise = rng_for(0, "speed").integers(-12, 13, (len(rows), *images.size, 3), np.int16)
    pictures = np.clip(images[rows] + noise, 0, 255).astype(np.uint8)
    names = text_column([f"{number}.jpg" for number in range(len(rows))])
    split = np.full(len(rows), "train")
    split[[0, len(rows) - 1]] = "test"  # a task must have something to test on
    table = PlacePhotos(
        Path("nowhere"),
        names,
        keys=names,
        groups=photos.groups,
        group=photos.group[rows],
        easting=photos.easting[rows] + offset,
        northing=photos.northing[rows],
        split=split,
        query=photos.query[rows],
    )
    return table, Decoded(
        [], images.size, np.arange(len(rows)), skipped=(), key=f"speed {queries} {database}", rows=pictures
    )


def _task(network, client, kept, **mining):
    """A task on this client's photographs; `kept`: maps of the frozen layers are kept, as by default if they fit."""
    model = PlaceModel(NETWORKS[network], "random")
    task = Places(TownPhotos(size="tiny"), model, PartialMiner(**mining))
    task.loaded._read = client
    net = _network(task)
    if not kept:
        task.loaded._maps[net.trunk_key, "cpu"] = FeatureMaps(net, client[1], room=0.0)
    # were it the other kind, every figure would be of something else than it says
    assert (task.loaded.maps(net)._kept is not None) == kept
    return task


def _network(task):
    """With the weights that a bench gives it: the same trunk has the same maps."""
    torch.manual_seed(seed_for(0, "network"))
    return task.network()


# ---- (a) embedding


def embedding(town, network, repeats):
    """The speed of `describe` and `embed` beside a plain loop with the same network, pictures and batches."""
    client = _client(town, 100, 100)
    images, rows = client[1].rows, np.arange(places._SCAN)
    anew, kept = (_task(network, client, how) for how in (False, True))
    net = _network(anew).eval()
    often = np.tile(rows, 4)  # with maps it is so much quicker that there must be more of them
    maps = kept.loaded.maps(net)._kept
    ours = {"describe": lambda: anew.describe(net, images[rows]), "maps anew": lambda: anew.embed(net, rows)}
    found = _beside(ours, lambda: _plain_embedding(net, images[rows]), repeats)
    ours = {"maps kept": lambda: kept.embed(net, often)}
    return found | _beside(ours, lambda: _plain_embedding(net, maps, often), repeats)


def _plain_embedding(net, source, rows=None):
    """Descriptors of a batch of pictures, or of maps of the frozen layers by their rows."""
    with torch.no_grad():
        if rows is None:
            return net(torch.from_numpy(source).permute(0, 3, 1, 2).float() / 255).numpy()
        parts = (source[rows[start : start + places._SCAN]] for start in range(0, len(rows), places._SCAN))
        return torch.cat([net.head(torch.from_numpy(part).permute(0, 3, 1, 2)) for part in parts]).numpy()


def _beside(ours, plain, repeats):
    """The speed of each beside the plain loop's: medians over interleaved repeats. Their results must be the same."""
    works = {"": plain, **ours}
    taken = {name: [] for name in works}
    for number in range(repeats):
        for name in sorted(works, reverse=number % 2 == 1):
            seconds, result = cpu_seconds(works[name])
            taken[name].append(seconds)
            np.testing.assert_allclose(result, plain() if not number else result, atol=1e-4)
    return {
        name: {"ratio": statistics.median(np.divide(taken[""], taken[name]).tolist()),
               "photos_per_second": len(result) / statistics.median(taken[name])}
        for name in ours
    }  # fmt: skip


# ---- (b), (c) training


class Plain:
    """Training as anyone would write it, step by step."""

    def __init__(self, task, weights):
        self.task, self.net, self.losses = task, _network(task), []
        self.net.load_state_dict(weights)
        self.kept, self.images = task.loaded.maps(self.net)._kept, task.loaded.images.rows
        self.optimizer = torch.optim.Adam([p for p in self.net.parameters() if p.requires_grad], LR)
        self.net.train()

    def step(self, rows):
        part = torch.from_numpy((self.images if self.kept is None else self.kept)[rows]).permute(0, 3, 1, 2)
        found = self.net(part.float() / 255) if self.kept is None else self.net.head(part)
        queries = len(rows) // (2 + self.task.mining.negatives)
        query, positive, rest = found[:queries], found[queries : 2 * queries], found[2 * queries :]
        near = (query - positive).pow(2).sum(1, keepdim=True)
        far = (query[:, None] - rest.view(queries, -1, found.shape[1])).pow(2).sum(2)
        loss = (near - far + self.task.loss.margin).clamp(min=0).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.losses.append(float(loss.detach()))


class Watched:
    """One local epoch on one device, through the system's own loop: where the time goes.

    With `beside`, each step is made by a plain loop as well, right before it, and compared with it.
    """

    def __init__(self, task, steps=0, beside=False):
        training = Training(batch_size=STEP, optimizer="adam", lr=LR, at_most=steps)
        experiment = Experiment(task, Random(1), training=training, evaluation=Evaluation(holdout=0.0, clients=0))
        self.spent = {"mine": 0.0, "of_client": 0.0, "embed": 0.0, "plain": 0.0}
        with TemporaryDirectory() as folder, ExitStack() as stack:
            bench = experiment.bench(Path(folder))
            device, net = bench.device("c0", 1, 0), bench.net(0)
            task.loaded.maps(net)  # made, or kept, once for all rounds: no part of an epoch
            self.queries = len(task.loaded.of_client(task.loaded.divided.pool, task.mining).usable)
            for owner, name in ((PartialMiner, "mine"), (PlaceSamples, "of_client"), (Places, "embed")):
                stack.enter_context(patch.object(owner, name, self._timed(name, getattr(owner, name))))
            plain = Plain(task, net.state_dict()) if beside else None
            if plain:
                stack.enter_context(patch.object(Places, "_inputs", self._after(plain.step, Places._inputs)))
            total, result = cpu_seconds(lambda: device.train(net, Bundle()))
        self.steps = result["steps"]
        self.mining = self.spent["mine"] + self.spent["of_client"]
        self.search = self.mining - self.spent["embed"]
        self.stepping = total - self.mining - self.spent["plain"]
        # as it would go on: one cache of mining, and all its steps
        self.epoch = self.mining + self.stepping * (self.queries / STEP) / self.steps
        if plain:
            np.testing.assert_allclose(np.mean(plain.losses), result["loss"], rtol=1e-3)

    def _timed(self, name, inner):
        def timed(*args):
            took, result = cpu_seconds(lambda: inner(*args))
            self.spent[name] += took
            return result

        return timed

    def _after(self, step, inner):
        def inputs(task, net, rows, *rest):
            self.spent["plain"] += cpu_seconds(lambda: step(rows))[0]
            return inner(task, net, rows, *rest)

        return inputs


def training(town, network, steps, repeats):
    """Steps per second without mining, beside a plain loop over the same photographs with the same network."""
    client = _client(town, STEP * steps, STEP * steps)
    found = {}
    for kept in (False, True):
        task = _task(network, client, kept, pool=50)
        runs = [Watched(task, beside=True) for _ in range(repeats)]
        found["maps kept" if kept else "maps anew"] = {
            "ratio": statistics.median(run.spent["plain"] / run.stepping for run in runs),
            "steps_per_second": statistics.median(run.steps / run.stepping for run in runs),
        }
    return found


def mining(town, network, queries, database, steps):
    """The shares of mining in a local epoch over so many photographs, with a pool and a cache of as many queries."""
    client = _client(town, queries, database)
    found = {}
    for kept in (False, True):
        epoch = Watched(_task(network, client, kept, pool=queries, refresh=queries), steps)
        found["maps kept" if kept else "maps anew"] = {
            "search": epoch.search / epoch.epoch, "whole": epoch.mining / epoch.epoch, "seconds": epoch.epoch,
            "steps_timed": epoch.steps, "queries": epoch.queries,
        }  # fmt: skip
    return found


# ---- all of it


def speed(quick, out):
    """Every figure; nothing of it is left in the user's cache."""
    batches, repeats, length = (3, 1, 8) if quick else (25, 5, 50)
    queries, steps = (60, 8) if quick else (QUERIES, 0)  # of mining's epoch; 0: all steps are made
    figures, threads = {"networks": {}}, torch.get_num_threads()
    with TemporaryDirectory(dir=out) as place:
        figures["locating"] = locating(20_000 if quick else 1_000_000, Path(place))
    note.print("measured: locating", highlight=False)
    figures["split"] = split(100_000 if quick else 1_600_000)
    note.print("measured: the proximity split", highlight=False)
    samples = PlaceSamples(TownPhotos(size="tiny"))
    town = samples.table, samples.images
    torch.set_num_threads(1)
    try:
        for network in list(NETWORKS)[: 1 if quick else None]:
            with TemporaryDirectory(dir=out) as place, cache_in(place):
                figures["networks"][network] = {
                    "embedding": embedding(town, network, batches),
                    "training": training(town, network, length, repeats),
                    "mining": {
                        f"{database:,} photos in the database": mining(town, network, queries, database, steps)
                        for database in (queries, 2 * queries)
                    },
                }
            note.print(f"measured: {network}", highlight=False)
    finally:
        torch.set_num_threads(threads)
    return figures


def speed_targets(figures):
    targets = []
    for network, found in figures["networks"].items():
        for kind in ("embedding", "training"):
            targets += [
                at_least(f"{network}: {kind} beside a plain loop, {how}", each["ratio"], 0.95, timed=True)
                for how, each in found[kind].items()
            ]
        for client, shares in found["mining"].items():
            for what, words, bound in (("search", "mining's search", SEARCH), ("whole", "mining as a whole", WHOLE)):
                name = f"{network}: {words}, share of a local epoch, {client}, maps kept"
                targets.append(at_most(name, shares["maps kept"][what], bound, timed=True))
    name = f"proximity split of {figures['split']['photos']:,} photos, CPU seconds"
    return [*targets, at_most(name, figures["split"]["cpu_seconds"], 30, timed=True)]


def show_speed(figures, out):
    networks = list(figures["networks"].values())
    out.print("speed of one thread, beside a plain torch loop with the same network")
    table = Table()
    for head in ("", *figures["networks"]):
        table.add_column(head, justify="right" if head else "left")
    for kind, unit in (("embedding", "photos_per_second"), ("training", "steps_per_second")):
        for how in networks[0][kind]:
            found = [network[kind][how] for network in networks]
            shown = (f"{each['ratio']:.2f} ({each[unit]:.3g} {unit.split('_')[0]}/s)" for each in found)
            table.add_row(f"{kind}, {how}", *shown)
    for client, shares in networks[0]["mining"].items():
        for how in shares:
            found = [network["mining"][client][how] for network in networks]
            shown = (f"{each['whole']:.1%} (search {each['search']:.2%})" for each in found)
            table.add_row(f"mining in an epoch of {found[0]['queries']:,} queries, {client}, {how}", *shown)
    out.print(table)
    above = [
        f"{name} {shares['maps anew']['whole']:.1%} with {client}"
        for name, found in figures["networks"].items()
        for client, shares in found["mining"].items()
        if shares["maps anew"]["whole"] > WHOLE
    ]
    if above:
        words = "not a target, but above it where maps do not fit and are made anew, mining as a whole"
        out.print(f"  {words}: {', '.join(above)}", highlight=False, soft_wrap=True)
    made, found = figures["split"], figures["locating"]
    out.print(f"proximity split of {made['photos']:,} photos into {made['clients']:,} clients: "
              f"{made['cpu_seconds']:.1f} CPU s, {made['seconds']:.1f} s", highlight=False)  # fmt: skip
    parts = ", ".join(f"{name} {value:.1f} ms" for name, value in found["milliseconds"].items())
    out.print(f"locating one photo among {found['descriptors']:,} descriptors, {found['threads']} threads: {parts}",
              highlight=False)  # fmt: skip
