"""What the parts of benchmarks/places.py share: runs that are continued, noise, targets."""

import math
import os
import statistics
import time
from contextlib import contextmanager

import numpy as np
from rich.console import Console

from wayfare import runner
from wayfare.errors import ConfigError, DeviceError, QuorumError
from wayfare.reports.record import Record

note = Console(stderr=True)


# ---- runs


def play(plan, folder, machine, metric="test/R@1"):
    """Run experiments, name -> experiment, each in a folder of that name: what is finished is read, the rest goes on.

    Returns the records, and why there is none of the others.
    """
    records, failed, taken = {}, {}, []
    for number, (name, experiment) in enumerate(plan.items(), start=1):
        place, began = folder / name, time.monotonic()
        if not _is_finished(place, experiment):
            try:
                begun = (place / "experiment.toml").exists()
                runner.resume(place, machine) if begun else runner.run(experiment, place, machine)
            except (DeviceError, QuorumError) as error:  # as many clients as these have nothing to train on
                failed[name] = str(error)
                note.print(f"[yellow]{name} ended early[/yellow] {error}", highlight=False, soft_wrap=True)
                continue
            taken.append(time.monotonic() - began)
        records[name] = Record.read(place)
        left = statistics.fmean(taken) * (len(plan) - number) if taken else 0
        shown = f"{metric.rpartition('/')[2]} {100 * records[name].final(metric):.1f}, {records[name].seconds:.0f} s"
        note.print(f"[{number}/{len(plan)}] {name}: {shown}; about {left / 60:.0f} min left", markup=False)
    return records, failed


def _is_finished(place, experiment):
    file = place / "experiment.toml"
    if file.exists() and file.read_text(encoding="utf-8") != experiment.to_toml():
        raise ConfigError(f"{place} holds a run with other settings: remove it, or choose another --out")
    return (place / "summary.json").exists()


def trained_clients(experiment):
    """How many clients train, and how many steps each makes in a round on average; with nothing to train on, none."""
    task, crowd = experiment.task, experiment.crowd(experiment.split())
    clients = [crowd.client(crowd.trained.id(i)) for i in range(len(crowd.trained))]
    usable = [len(task._miner(task.grounds.pool[np.unique(c.train)], task._mining).usable) for c in clients]
    most = experiment.training.at_most or math.inf
    steps = [min(math.ceil(count / experiment.training.batch_size), most) for count in usable]
    return len(clients), statistics.fmean(steps)


@contextmanager
def cache_in(folder):
    """What is derived from passing data goes here instead of into the user's cache."""
    before = os.environ.get("WAYFARE_CACHE")
    os.environ["WAYFARE_CACHE"] = str(folder)
    try:
        yield
    finally:
        os.environ.pop("WAYFARE_CACHE")
        if before is not None:
            os.environ["WAYFARE_CACHE"] = before


def cpu_seconds(work):
    """How long it takes this process, and what comes of it."""
    began = time.process_time()
    result = work()
    return time.process_time() - began, result


# ---- noise


def spread(values):
    """Mean and sample standard deviation; None for the second of a single value."""
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None


def difference(ours, theirs, share=0.95):
    """Mean of the differences of pairs (keys that both have), its standard error, and the quantile of t at `share`."""
    from scipy.stats import t

    pairs = [ours[key] - theirs[key] for key in ours if key in theirs]
    if len(pairs) < 2:
        return None
    mean, sd = spread(pairs)
    n = len(pairs)
    return {"mean": mean, "error": sd / math.sqrt(n), "t": float(t.ppf(share, n - 1)), "pairs": n}


def beyond_noise(name, ours, theirs, unit):
    """The target that one is above the other: a paired t test, one-sided, at 95 %."""
    found = difference(ours, theirs)
    if found is None:
        return {"name": name, "value": None, "target": f"needs at least two {unit}", "met": False}
    bound = found["t"] * found["error"]
    text = f"above {bound:.2f} (paired over {found['pairs']} {unit}: t {found['t']:.2f} x error {found['error']:.2f})"
    return {"name": name, "value": found["mean"], "target": text, "met": found["mean"] > bound}


# ---- targets


def at_least(name, value, bound):
    return {"name": name, "value": value, "target": f"at least {bound:g}", "met": value >= bound}


def at_most(name, value, bound):
    return {"name": name, "value": value, "target": f"at most {bound:g}", "met": value <= bound}


def plus_minus(pair):
    """Mean and spread as text."""
    mean, around = pair
    return f"{mean:.1f}" if around is None else f"{mean:.1f} ± {around:.1f}"
