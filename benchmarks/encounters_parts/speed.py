"""How fast models are merged and judged: beside a plain torch loop, and beside gossipy with the same gossip workload.

- evaluations: two models are merged and the mean is judged on 500 pictures, as a device of a tour does it and as
  anyone would write it, by turns in one process with one thread; CPU seconds. Heads on a frozen network also all
  together (`task.tally_many`).
- gossip: 200 nodes with the small CNN (89,834 parameters), each of which gets one model per round and takes the mean,
  alone or with a step of training (32 pictures) after it. Ours is a whole run: contacts, matching, the gate, and
  checkpoints of all models on the disk, after every slot where they train and every ten where they only merge. gossipy
  is given its faster number of threads and layout. Each in a process of its own, wall seconds per message after the
  first two rounds; ours has a process per core where it trains.
The pictures are noise: nothing here depends on what they show.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import product
from pathlib import Path

import numpy as np
from rich.table import Table

from encounters_parts.processes import cpu_seconds, peak_mib

HERE = Path(__file__).resolve().parent
NODES, QUICK_NODES, IMAGES, PROBE, WARM = 200, 40, 40, 500, 2
SLOTS = {"merge": 60, "step": 6}
QUICK_SLOTS = {"merge": 20, "step": 2}
EACH = {"merge": 10, "step": 1}  # slots of ours between two checkpoints
MODES = {"merge": "merging alone", "step": "with a local step"}
_LAYOUTS = {"plain": "NCHW", "channels_last": "NHWC"}
LEAST = {"merge": 5.0, "step": 1.5}


def noise_pictures(folder, train, test=50):
    """CIFAR-10's binary form, of noise."""
    rng = np.random.default_rng(0)
    folder.mkdir(parents=True, exist_ok=True)
    for name, count in (("data_batch_1.bin", train), ("test_batch.bin", test)):
        rows = rng.integers(0, 256, (count, 3073), dtype=np.uint8)
        rows[:, 0] = np.arange(count) % 10
        (folder / name).write_bytes(rows.tobytes())
    return folder


# ---- merged models judged per second


def evaluations(quick, work):
    """CPU seconds per merged and judged model: ours and the plain loop."""
    return {"CNN": _cnn(3 if quick else 9, 20 if quick else 40, work), **_heads(quick, work)}


def _cnn(repeats, models, work):
    import torch

    from wayfare import Experiment
    from wayfare.core.bundle import Bundle
    from wayfare.core.exchange import PEER
    from wayfare.engines.local import Local
    from wayfare.objects.data.cifar import Cifar10
    from wayfare.objects.task import Objects
    from wayfare.strategies.fedavg import FedAvg

    task = Objects(Cifar10(str(noise_pictures(work / "cnn", PROBE))))
    experiment = Experiment(task=task, strategy=FedAvg(weighting="uniform"))
    nets = [task.network() for _ in range(8)]
    held = [{name: t.detach().clone() for name, t in net.state_dict().items()} for net in nets]
    pairs = [(i % 8, (i * 3 + 1) % 8) for i in range(models)]
    at = torch.arange(PROBE)
    bench = experiment.bench(work / "no run")
    net, pictures, labels = task.network().eval(), *_tensors(task)

    def ours(engine):
        requests = []
        for a, b in pairs:
            tensors = {"model": held[a], "model" + PEER: held[b], "samples": {"at": at}}
            requests.append(("c0", Bundle(tensors, {"round": 1, "n": 1, "n" + PEER: 1})))
        replies = engine.call("look", requests, time.monotonic() + 3600)
        return [int(reply["tally"]["right"].sum()) for _, reply in replies]

    @torch.no_grad()
    def plain():
        found = []
        for a, b in pairs:
            net.load_state_dict({name: (held[a][name] + held[b][name]) / 2 for name in held[a]})
            right = 0
            for start in range(0, PROBE, 250):
                logits = net(pictures[start : start + 250])
                right += int((logits.argmax(1) == labels[start : start + 250]).sum())
            found.append(right)
        return found

    with Local() as engine:
        engine.open("", "", lambda: bench)
        return _by_turns(lambda: ours(engine), plain, repeats, models)


def _tensors(task):
    """The pictures as a plain loop keeps them: normalised, in the faster layout."""
    import torch

    pool = task.loaded.parts[0]
    pictures = torch.from_numpy(pool.images).permute(0, 3, 1, 2).float().div(255).sub(0.5).div(0.5)
    return pictures, torch.from_numpy(pool.labels)


def _heads(quick, work):
    import torch

    from wayfare.objects.data.cifar import Cifar10
    from wayfare.objects.models import FrozenHeadClassifier
    from wayfare.objects.task import Objects

    task = Objects(Cifar10(str(noise_pictures(work / "heads", PROBE))), FrozenHeadClassifier())
    task.prepare(lambda *_: None)
    features, labels = task.loaded.inputs[0].rows(np.arange(PROBE), torch.device("cpu")), torch.from_numpy(task.labels)
    count, at = 256, np.arange(PROBE)
    heads, biases = 0.05 * torch.randn(count, 10, features.shape[1]), torch.zeros(count, 10)
    net = torch.nn.Linear(features.shape[1], 10)
    other = torch.roll(torch.arange(count), 1)

    def together():
        right, _ = task.tally_many((heads + heads[other]) / 2, (biases + biases[other]) / 2, at)
        return right.sum(1).tolist()

    @torch.no_grad()
    def plain():
        found = []
        for i in range(count):
            j = int(other[i])
            net.load_state_dict({"weight": (heads[i] + heads[j]) / 2, "bias": (biases[i] + biases[j]) / 2})
            found.append(int((net(features).argmax(1) == labels).sum()))
        return found

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return {"heads, together": _by_turns(together, plain, 3 if quick else 9, count)}
    finally:
        torch.set_num_threads(threads)


def _by_turns(ours, plain, repeats, models):
    """Medians over repeats of CPU seconds per model, and of the quotients within a repeat; the first is not counted."""
    taken, answers = [], []
    for _ in range(repeats + 1):
        times = []
        for work in (plain, ours):
            began = time.process_time()
            answers.append(work())
            times.append((time.process_time() - began) / models)
        taken.append(times)
    differ = max(abs(a - b) for a, b in zip(answers[0], answers[1]))
    seconds = [statistics.median(column) for column in zip(*taken[1:])]
    ratio = statistics.median(theirs / own for theirs, own in taken[1:])
    return {"plain": seconds[0], "ours": seconds[1], "ratio": ratio, "answers_differ_by": differ}


# ---- gossip


def gossip(quick):
    """Seconds per message of both; gossipy's are None if it is not there, and `why` says why."""
    sys.path.insert(0, str(HERE.parent / "peers"))
    import environments

    nodes, slots, why, python = QUICK_NODES if quick else NODES, QUICK_SLOTS if quick else SLOTS, "", ""
    try:
        python = str(environments.python("gossipy", install=not quick))
    except environments.Unavailable as error:
        why = str(error)
    figures = {}
    for mode in MODES:
        theirs = [_peer(python, mode, nodes, slots[mode], *way) for way in _ways(quick)] if python else []
        ours = _ours(mode, nodes, slots[mode])
        best = min(theirs, key=lambda found: found["seconds"], default=None)
        figures[mode] = {"ours": ours, "gossipy": best, "all of gossipy": theirs}
    return {"nodes": nodes, "modes": figures, "why": why}


def _ways(quick):
    return [(1, "plain")] if quick else list(product((1, 2), ("plain", "channels_last")))


def _peer(python, mode, nodes, rounds, threads, layout):
    told = {"mode": mode, "nodes": nodes, "rounds": rounds, "images": IMAGES, "threads": threads, "layout": layout}
    return _json_of([python, str(HERE / "gossip_peer.py"), json.dumps(told)]) | {"threads": threads, "layout": layout}


def _ours(mode, nodes, slots):
    return _json_of([sys.executable, "-m", "encounters_parts.speed", mode, str(nodes), str(slots)])


def _json_of(command):
    done = subprocess.run(command, cwd=HERE.parent, capture_output=True, text=True, timeout=1800)
    if done.returncode:
        raise RuntimeError(f"{command[1:3]} failed with status {done.returncode}:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def _child(mode, nodes, slots):
    """Our run of it, in this process."""
    from wayfare import Experiment, Training, runner
    from wayfare.encounters.policies.always import Always
    from wayfare.encounters.topology import Encounters
    from wayfare.experiment import Evaluation
    from wayfare.objects.data.cifar import Cifar10
    from wayfare.objects.task import Objects
    from wayfare.partition.random import Random
    from wayfare.strategies.fedavg import FedAvg

    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        task = Objects(Cifar10(str(noise_pictures(work / "pictures", nodes * IMAGES + 2))))
        each = EACH[mode]
        count = slots + WARM * each
        rows = [f"{device},{30 * slot},0,0" for device in range(nodes) for slot in range(count)]
        (work / "crowd.csv").write_text("\n".join(["device,time,x,y", *rows]) + "\n")  # all at one spot
        topology = Encounters(traces=str(work / "crowd.csv"), probe=1, judge=1, together=nodes,
                              iterations=int(mode == "step"), slots=each)  # fmt: skip
        experiment = Experiment(
            task=task, partition=Random(nodes), strategy=FedAvg(weighting="uniform"), topology=topology,
            exchange=Always(limit=10**6), training=Training(batch_size=32, lr=0.05, iterations=1),
            evaluation=Evaluation(every=0, holdout=0.0, test=False), rounds=0,
        )  # fmt: skip
        ends = {}

        def listen(event, data):
            if event == "round":
                ends[data["round"]] = (time.perf_counter(), cpu_seconds(), len(data["clients"]), peak_mib())

        engine = "pool" if mode == "step" else "local"  # a mean alone is taken where the rows are, by one process
        runner.run(experiment, work / "run", engine, listen=listen)
        begun = topology.beginning(nodes) + WARM
        first, last = ends[begun], ends[max(ends)]
        messages = sum(each[2] for number, each in ends.items() if number > begun)
        size = sum(p.numel() for p in task.network().parameters())
    print(json.dumps({"seconds": last[0] - first[0], "cpu_seconds": last[1] - first[1], "messages": messages,
                      "parameters": size, "peak_mib": last[3]}))  # fmt: skip


# ---- the part


def measure(quick, out):
    return {"evaluations": evaluations(quick, out / "speed"), "gossip": gossip(quick)}


def targets(figures):
    from places_parts.common import at_least, at_most

    found = figures["evaluations"]
    name = "merged models judged, CNN one by one: speed beside a plain torch loop"
    judged = [
        at_least(name, found["CNN"]["ratio"], 0.95, timed=True),
        at_least("the same, heads all together", found["heads, together"]["ratio"], 1.0, timed=True),
    ]
    judged += [
        at_most(f"{way}: right answers that differ from the plain loop's, of {PROBE}", each["answers_differ_by"], 1)
        for way, each in found.items()
    ]
    for mode, each in figures["gossip"]["modes"].items():
        name = f"gossip, {MODES[mode]}: speed beside gossipy"
        if each["gossipy"] is None:
            why = f"not measured: {figures['gossip']['why']}"
            judged.append({"name": name, "value": None, "target": why, "met": None})
        else:
            judged.append(at_least(name, _per(each["gossipy"]) / _per(each["ours"]), LEAST[mode], timed=True))
    return judged


def _per(found):
    return found["seconds"] / found["messages"]


def show(figures, out):
    table = Table(title=f"merged and judged on {PROBE} pictures, CPU ms per model", title_justify="left")
    for head in ("", "plain torch loop", "ours", "speed", "right answers differ by"):
        table.add_column(head, justify="right" if head else "left")
    for name, each in figures["evaluations"].items():
        table.add_row(name, f"{1000 * each['plain']:.2f}", f"{1000 * each['ours']:.2f}", f"{each['ratio']:.2f}",
                      f"at most {each['answers_differ_by']}")  # fmt: skip
    out.print(table)
    table = Table(title=f"gossip, {figures['gossip']['nodes']} nodes, seconds per 1,000 messages", title_justify="left")
    for head in ("", "who", "messages", "s", "CPU s", "peak MiB", "parameters"):
        table.add_column(head, justify="left" if head in ("", "who") else "right")
    for mode, each in figures["gossip"]["modes"].items():
        rows = {f"gossipy, {f['threads']} th., {_LAYOUTS[f['layout']]}": f for f in each["all of gossipy"]}
        for who, found in {**rows, "ours": each["ours"]}.items():
            scale = 1000 / found["messages"]
            told = (f"{scale * found['seconds']:.2f}", f"{scale * found['cpu_seconds']:.2f}")
            table.add_row(MODES[mode], who, f"{found['messages']:,}", *told, f"{found['peak_mib']:.0f}",
                          f"{found['parameters']:,}")  # fmt: skip
    out.print(table)
    if figures["gossip"]["why"]:
        out.print(f"gossipy was not measured: {figures['gossip']['why']}", highlight=False, soft_wrap=True)


if __name__ == "__main__":
    _child(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
