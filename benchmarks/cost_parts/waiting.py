"""Virtual time until a run is as good as FedAvg that waits: FedBuff with heavy-tailed speeds; equality; orders."""

import random
import statistics
from dataclasses import replace

from rich.table import Table

from cost_parts.reached import LAST, POINT, RECIPES, TUNING_SEED
from places_parts import common
from wayfare import runner
from wayfare.clock.drawn import Drawn
from wayfare.core.wrapped_engine import WrappedEngine
from wayfare.engines.local import Local
from wayfare.engines.pool.engine import Pool
from wayfare.experiment import Experiment
from wayfare.pages.reach import TargetValue
from wayfare.pages.record import Record
from wayfare.recipe import override, read_table
from wayfare.topologies.buffered import Buffered
from wayfare.topologies.server import Server

METRIC, CHOSEN_BY = "test/accuracy", "clients/accuracy"
COHORT, CLIENTS, ROUNDS = 10, 60, 60
HEAVY = Drawn(law="pareto", speed=10.0, speed_spread=1.0)  # a quarter of the devices needs over twice the median's time
WAYS = {f"FedBuff, K = {buffer}": Buffered(concurrency=COHORT, buffer=buffer) for buffer in (2, 5, 10)}
PLAIN, OVER = "FedAvg", "FedAvg, over-selection 1.3"
SOONER = 1.3


def measure(quick, seeds, folder, workers):
    """What was chosen; for each seed the time of each way; whether equal devices give FedAvg; hashes of all orders."""
    plan = {f"choosing/{way}": _experiment(way, quick, TUNING_SEED) for way in (PLAIN, *WAYS)}
    made, _ = common.play(plan, folder, workers, METRIC)
    level = _level(made[f"choosing/{PLAIN}"], CHOSEN_BY)
    tried = {way: _sooner(made[f"choosing/{PLAIN}"], made[f"choosing/{way}"], level) for way in WAYS}
    chosen = max(WAYS, key=lambda way: tried[way] or 0.0)
    ways = (PLAIN, OVER, chosen)
    plan = {f"judged/{way}-{seed}": _experiment(way, quick, seed) for seed in range(seeds) for way in ways}
    made, _ = common.play(plan, folder, workers, METRIC)
    rows = []
    for seed in range(seeds):
        records = {way: made[f"judged/{way}-{seed}"] for way in ways}
        level = _level(records[PLAIN], METRIC)
        rows.append({
            "level": level.value, "ends": {way: _end(record, METRIC) for way, record in records.items()},
            "seconds": {way: _seconds(record, level) for way, record in records.items()},
            "megabytes": {way: _megabytes(record, level) for way, record in records.items()},
            "sooner": {way: _sooner(records[PLAIN], record, level) for way, record in records.items()},
        })  # fmt: skip
    return {
        "way": chosen, "tried": tried, "rows": rows,
        "equal": _equal(quick, folder / "equal"), "hashes": _orders(2 if quick else 200, folder / "orders"),
    }  # fmt: skip


def _base(seed, rounds):
    recipe = {key: value for key, value in read_table(RECIPES / "quickstart.toml").items() if key != "cells"}
    settings = {"partition.clients": CLIENTS, "rounds": rounds, "name": "waiting", "topology.per_round": COHORT}
    settings |= {"training.epochs": 2, "evaluation.clients": CLIENTS if seed == TUNING_SEED else 0}
    return Experiment.from_table(override(recipe, settings)).with_seed(seed)


def _experiment(way, quick, seed):
    base = _base(seed, 3 if quick else ROUNDS)
    if way in WAYS:
        # as many replies as the other has in twice its rounds; both are judged after every ten replies
        merges = COHORT // WAYS[way].buffer
        evaluation = replace(base.evaluation, every=merges)
        return replace(base, topology=WAYS[way], clock=HEAVY, rounds=2 * base.rounds * merges, evaluation=evaluation)
    return replace(base, clock=replace(HEAVY, over=1.3 if way == OVER else 1.0))


def _end(record, metric):
    """The mean of the last values: one round alone swings."""
    return statistics.fmean(record.series(metric)[1][-LAST:])


def _level(record, metric):
    return TargetValue(metric, _end(record, metric) - POINT)


def _seconds(record, level):
    first = level.first_round(record)
    return record.elapsed()[first] if first else None


def _megabytes(record, level):
    first = level.first_round(record)
    return record.sent()[first] / 1e6 if first else None


def _sooner(plain, other, level):
    """How many times sooner the other gets there; None where one does not."""
    ours, theirs = _seconds(other, level), _seconds(plain, level)
    return theirs / ours if ours and theirs else None


# ---- bits


def _equal(quick, folder):
    """Whether a buffer as large as the cohort and devices that are alike give the model of FedAvg, by strategy."""
    alike, found = Drawn(speed_spread=0.0, link_spread=0.0), {}
    for name in ("fedavg", "fedadam", "moon"):
        strategy = Experiment.from_toml(f'[strategy]\nname = "{name}"\n').strategy
        base = _base(0, 2 if quick else 5)
        # of unequal samples an equal number of steps
        base = replace(base, strategy=strategy, training=replace(base.training, iterations=4))
        goes_on = replace(base, topology=Buffered(concurrency=COHORT, buffer=COHORT), clock=alike)
        waited = _model(base, folder / name / "waits", "local")
        found[name] = waited == _model(goes_on, folder / name / "goes on", "local")
    return found


def _model(experiment, place, engine):
    """The digest of a run's model; the run is continued if it was begun, and read if it is done."""
    if (place / "summary.json").exists():
        return Record.read(place).model_sha256
    begun = (place / "experiment.toml").exists()
    return (runner.resume(place, engine) if begun else runner.run(experiment, place, engine))["model_sha256"]


class _AnyOrder(WrappedEngine):
    """Gets devices done in another order, and answers in the order asked."""

    def __init__(self, inner, seed):
        super().__init__(inner)
        self.dice, self.prefetches = random.Random(seed), inner.prefetches

    def train(self, requests, deadline):
        asked = list(requests)
        found = dict(self.inner.call("train", self.dice.sample(asked, len(asked)), deadline))
        return iter([(id, found[id]) for id, _ in asked])


def _orders(count, folder):
    """The models of runs whose devices get done in another order each, and of pools of several sizes."""
    base = replace(
        _base(0, 4), topology=Buffered(concurrency=12, buffer=6), clock=replace(HEAVY, deadline=6.0),
        strategy=Experiment.from_toml('[strategy]\nname = "moon"\n').strategy,
    )  # fmt: skip
    base = replace(base, evaluation=replace(base.evaluation, every=0), policy=replace(base.policy, quorum=0.1))
    waits = replace(base, topology=Server(COHORT), clock=replace(base.clock, over=1.5))
    found = {}
    for name, experiment, orders in (("buffered", base, count), ("server", waits, count // 2)):
        hashes = {}
        for seed in range(orders):
            with Local() as local:
                model = _model(experiment, folder / name / str(seed), _AnyOrder(local, seed))
            hashes[model] = hashes.get(model, 0) + 1
        for workers in (1, 2, 4):
            with Pool(workers) as pool:
                model = _model(experiment, folder / name / f"pool-{workers}", pool)
            hashes[model] = hashes.get(model, 0) + 1
        found[name] = {"runs": sum(hashes.values()), "models": len(hashes)}
    return found


def targets(figures):
    """What is judged: the mean over seeds; a run that does not get there counts as never sooner."""
    way = figures["way"]
    mean = statistics.fmean(row["sooner"][way] or 0.0 for row in figures["rows"])
    models = max(each["models"] for each in figures["hashes"].values())
    equal = sum(figures["equal"].values())
    return [
        common.at_least(f"clock: times sooner in virtual time to FedAvg's {METRIC}, {way}", mean, SOONER),
        common.at_least("clock: strategies for which FedBuff without staleness is FedAvg, bit for bit", equal, 3),
        common.at_most("clock: models of one experiment over all orders and pools", models, 1),
    ]


def show(figures, console):
    """Print them."""
    for way, sooner in figures["tried"].items():
        console.print(f"  chosen from: {way}: {'not reached' if sooner is None else f'{sooner:.2f} times sooner'}")
    ways = list(figures["rows"][0]["seconds"])
    table = Table("", "level", *(f"{way}: end, virtual s, MB, times sooner" for way in ways), title="clock")
    for seed, row in enumerate(figures["rows"]):
        cells = [
            f"{row['ends'][way]:.3f}, not reached" if row["seconds"][way] is None else
            f"{row['ends'][way]:.3f}, {row['seconds'][way]:.1f}, {row['megabytes'][way]:.1f}, {row['sooner'][way]:.2f}"
            for way in ways
        ]  # fmt: skip
        table.add_row(f"seed {seed}", f"{row['level']:.3f}", *cells)
    console.print(table)
    console.print(f"  equal to FedAvg: {figures['equal']}; models: {figures['hashes']}", markup=False)
