"""The paper's scale: 1,900 devices for a day, L = 40, on the frozen network; and what VGG16 would take.

The run is in a process of its own. Its peak memory is the sum of the peaks of all its processes. Features of the
pictures, which are computed once and kept in the cache, are part of the time if they are not there yet; how long they
took is shown. For VGG16 one merge, judging, and training are measured with the real network of 14,719,818 parameters,
and multiplied by what the run has counted.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.table import Table

from encounters_parts.accuracy import QUICK, RECIPES, on_digits
from encounters_parts.processes import peak_mib

PAPER = {"partition.clients": 1900, "topology.traces": "town:1900"}
CORES = 2
PAPER_EPOCHS, PAPER_PROBE, PAPER_TEST, PAPER_MODELS = 10, 1000, 10_000, 231


def _child(quick, folder):
    from wayfare import runner
    from wayfare.papers.paper import Scale
    from wayfare.papers.plan import read_plan

    if quick:
        from wayfare.encounters.policies.fedtour import FedTour

        experiment = on_digits(FedTour(), QUICK)
    else:
        experiment = read_plan(RECIPES / "fedtour" / "figure5.toml", Scale.small, changes=PAPER).experiments["fedtour"]
    began, peaks, features = time.monotonic(), [0.0], [0.0]

    def listen(event, data):
        if event == "preparing" and data["text"] == "features of the pictures":
            features[0] = time.monotonic() - began
        elif event == "round" and (data["metrics"] or data["round"] % 100 == 0):
            peaks[0] = max(peaks[0], peak_mib())

    summary = runner.run(experiment, folder, "pool", CORES, listen=listen)
    seconds = time.monotonic() - began
    metrics, devices = summary["metrics"], len(_devices(experiment))
    kept = experiment.topology.reserve
    print(json.dumps({
        "devices": devices, "seconds": seconds, "features_seconds": features[0], "peak_mib": max(peaks[0], peak_mib()),
        "taken": metrics["tour/taken"], "meetings": metrics["tour/meetings"], "accuracy": metrics["test/accuracy"],
        "pictures": experiment.task.samples - kept, "limit": experiment.exchange.limit,
    }))  # fmt: skip


def _devices(experiment):
    return experiment.topology.participants(experiment.partition.clients, experiment.seed).devices


def vgg16(counted, quick):
    """CPU seconds of each piece with the real network, and of all that the paper's experiment has of it."""
    import torch

    from wayfare.core.bundle import mean
    from wayfare.nets.vgg import VGG16Pooled

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        net = VGG16Pooled(10, 3)
        state = {name: t.detach() for name, t in net.state_dict().items()}
        batch = 4 if quick else 32
        pictures = torch.randn(batch, 3, 32, 32).contiguous(memory_format=torch.channels_last)
        optimiser = torch.optim.Adam(net.parameters(), 1e-4)

        def judge():
            with torch.no_grad():
                net.eval()(pictures)

        def train():
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(net.train()(pictures), torch.arange(batch) % 10).backward()
            optimiser.step()

        repeats = 1 if quick else 5
        merge = _seconds(lambda: mean([(1.0, state), (1.0, state)]), repeats)
        judged, trained = _seconds(judge, repeats) / batch, _seconds(train, repeats) / batch
    finally:
        torch.set_num_threads(threads)
    merges, devices = counted["taken"] * counted["devices"], counted["devices"]
    pairs = PAPER_MODELS * (PAPER_MODELS - 1) // 2
    pieces = {
        "devices learn, 10 passes": counted["pictures"] * PAPER_EPOCHS * trained,
        "merges, each judged on 1,000 pictures": merges * (merge + PAPER_PROBE * judged),
        "devices are judged on 10,000 pictures, before and after": 2 * devices * PAPER_TEST * judged,
        "the study of 231 models (each means of two on 1,000 pictures)": pairs * (merge + PAPER_PROBE * judged),
    }
    size = sum(t.numel() for t in state.values())
    return {"parameters": size, "merge": merge, "judge": judged, "train": trained, "cpu_seconds": pieces,
            "disk_gb": devices * size * 4 / 1e9}  # fmt: skip


def _seconds(work, repeats):
    work()
    taken = []
    for _ in range(repeats):
        began = time.process_time()
        work()
        taken.append(time.process_time() - began)
    return min(taken)


def measure(quick, out):
    with tempfile.TemporaryDirectory(dir=out) as folder:  # always anew: it is timed
        command = [sys.executable, "-m", "encounters_parts.scale", "quick" if quick else "full", folder]
        done = subprocess.run(command, cwd=Path(__file__).parents[1], stdout=subprocess.PIPE, text=True, check=True)
    counted = json.loads(done.stdout.strip().splitlines()[-1])
    return {"run": counted, "vgg16": vgg16(counted, quick)}


def targets(figures):
    from places_parts.common import at_most

    run = figures["run"]
    return [
        at_most(f"a day of {run['devices']:,} devices, frozen network, seconds", run["seconds"], 1200),
        at_most("its peak memory, GiB, all processes", run["peak_mib"] / 1024, 8),
    ]


def show(figures, out):
    run, vgg = figures["run"], figures["vgg16"]
    took = f"{run['seconds']:.0f} s ({run['features_seconds']:.0f} s of it features), peak {run['peak_mib']:.0f} MiB"
    done = f"{run['taken']:.1f} models taken and {run['meetings']:.0f} meetings per device"
    words = f"a day of {run['devices']:,} devices (signage included), L = {run['limit']}, frozen network: {took}"
    out.print(f"{words}; {done}, mean accuracy {100 * run['accuracy']:.1f} %", highlight=False, soft_wrap=True)
    table = Table(title=f"the same with VGG16 ({vgg['parameters']:,} parameters), estimated", title_justify="left")
    table.add_column("")
    table.add_column(f"hours on {CORES} cores", justify="right")
    for name, seconds in vgg["cpu_seconds"].items():
        table.add_row(name, f"{seconds / 3600 / CORES:.1f}")
    out.print(table)
    pieces = f"a merge {vgg['merge']:.3f}, a picture judged {vgg['judge']:.4f} and trained on {vgg['train']:.4f}"
    out.print(f"measured, CPU s of one thread: {pieces}; models on disk {vgg['disk_gb']:.0f} GB", highlight=False)


if __name__ == "__main__":
    _child(sys.argv[1] == "quick", Path(sys.argv[2]) / "run")
