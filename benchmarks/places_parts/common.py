"""What the parts of benchmarks/places.py share: runs that are continued, noise, targets."""

import math
import multiprocessing
import os
import statistics
import threading
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager

import numpy as np
from rich.console import Console

from wayfare import Experiment, runner
from wayfare.core.errors import ConfigError, DeviceError, QuorumError
from wayfare.pages.record import Record

note = Console(stderr=True)


# ---- runs


def play(plan, folder, machine, metric="test/R@1"):
    """Run experiments, name -> experiment, each in a folder of that name: what is finished is read, the rest goes on.

    Returns the records, and why there is none of the others. `machine` is an open engine, on which one runs after the
    other; or how many run side by side in a process each, which keeps all cores busy where runs are many and small.
    """
    left = {name: experiment for name, experiment in plan.items() if not _is_finished(folder / name, experiment)}
    failed, began = {}, time.monotonic()
    for number, (name, why) in enumerate(_played(left, folder, machine), start=1):
        if why is not None:
            failed[name] = why
            note.print(f"[yellow]{name} ended early[/yellow] {why}", highlight=False, soft_wrap=True)
            continue
        record, rest = Record.read(folder / name), (time.monotonic() - began) / number * (len(left) - number)
        shown = f"{metric.rpartition('/')[2]} {100 * record.final(metric):.1f}, {record.seconds:.0f} s"
        note.print(f"[{number}/{len(left)}] {name}: {shown}; about {rest / 60:.0f} min left", markup=False)
    return {name: Record.read(folder / name) for name in plan if name not in failed}, failed


def _played(plan, folder, machine):
    """Names in the order in which their runs end, with what went wrong or None."""
    if not isinstance(machine, int):
        for name, experiment in plan.items():
            yield name, _play_one(folder / name, experiment.to_toml(), machine)
        return
    processes = ProcessPoolExecutor(machine, multiprocessing.get_context("spawn"), initializer=_begin)
    try:
        runs = {processes.submit(_play_one, folder / name, e.to_toml()): name for name, e in plan.items()}
        for run in as_completed(runs):
            yield runs[run], run.result()
    finally:
        processes.shutdown(cancel_futures=True)


def _begin():
    import torch

    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(1)


def _end_with_parent():
    multiprocessing.parent_process().join()
    os._exit(1)


def _play_one(place, text, machine="local"):
    try:
        begun = (place / "experiment.toml").exists()
        runner.resume(place, machine) if begun else runner.run(Experiment.from_toml(text), place, machine)
    except (DeviceError, QuorumError) as error:  # as many clients as these have nothing to train on
        return str(error)
    return None


def _is_finished(place, experiment):
    file = place / "experiment.toml"
    if file.exists() and not experiment.is_in(file.read_text(encoding="utf-8")):
        raise ConfigError(f"{place} holds a run with other settings: remove it, or choose another --out")
    return (place / "summary.json").exists()


def trained_clients(experiment):
    """How many clients train, and how many steps each makes in a round on average; with nothing to train on, none."""
    task, crowd = experiment.task, experiment.clients(experiment.split())
    clients = [crowd.client(crowd.trained.id(i)) for i in range(len(crowd.trained))]
    pool = task.loaded.divided.pool
    usable = [len(task.loaded.of_client(pool[np.unique(c.train)], task.mining).usable) for c in clients]
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


def at_least(name, value, bound, timed=False):
    """`timed`: it is about speed or memory, which --quick does not judge."""
    return {"name": name, "value": value, "target": f"at least {bound:g}", "met": value >= bound, "timed": timed}


def at_most(name, value, bound, timed=False):
    return {"name": name, "value": value, "target": f"at most {bound:g}", "met": value <= bound, "timed": timed}


def shown(name, value):
    """A figure that nothing is demanded of."""
    return {"name": name, "value": value, "target": "", "met": None}


def plus_minus(pair):
    """Mean and spread as text."""
    mean, around = pair
    return f"{mean:.1f}" if around is None else f"{mean:.1f} ± {around:.1f}"
