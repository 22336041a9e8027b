"""A Ray cluster of two hosts: each a network namespace of its own, with its own address, /tmp and folder of runs.

The same experiment gives the model of the local engine there, with both hosts at work; and also where the link between
them is cut in the middle: Ray misses the second host, its workers start again on the first, and the round goes on.
It needs root, for the namespaces, and nothing but them is used: no address outside the two exists.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

NAMES, ADDRESSES, PORT = ("wayfare-a", "wayfare-b"), ("10.77.0.1", "10.77.0.2"), 6379
LINK = "wf-link"
RECIPE = """
name = "two-hosts"
rounds = {rounds}
data = {{ name = "digits" }}
model = {{ name = "cnn", width = 8, hidden = 32 }}
task = {{ name = "objects" }}
partition = {{ name = "dirichlet", clients = 8, alpha = 1.0 }}
strategy = {{ name = "{strategy}" }}
topology = {{ name = "server", per_round = 6 }}
training = {{ iterations = 700, batch_size = 16, lr = 0.005 }}
evaluation = {{ every = 0 }}
"""
# Ray asks each host every second whether it is there, and gives it up after five answers that do not come
HEALTH = {"RAY_health_check_initial_delay_ms": "1000", "RAY_health_check_period_ms": "1000",
          "RAY_health_check_timeout_ms": "1000", "RAY_health_check_failure_threshold": "5"}  # fmt: skip
LIMIT = 420  # seconds for one run


def unavailable():
    """Why this cannot be measured here, if it cannot."""
    if os.geteuid() or shutil.which("ip") is None:
        return "it needs root, and the command ip, for network namespaces"
    tried = subprocess.run(["ip", "netns", "add", "wayfare-try"], capture_output=True, text=True)
    subprocess.run(["ip", "netns", "del", "wayfare-try"], capture_output=True)
    return f"no network namespaces here: {tried.stderr.strip()}" if tried.returncode else ""


class Hosts:
    """Two namespaces with a link between them, and Ray's programs in both."""

    def __init__(self, folder):
        self.folder, self.programs = folder, []

    def __enter__(self):
        self._remove()
        for name, address, end in zip(NAMES, ADDRESSES, "ab", strict=True):
            _ip("netns", "add", name)
            if end == "a":
                _ip("link", "add", f"{LINK}-a", "netns", name, "type", "veth", "peer", f"{LINK}-b")
            else:
                _ip("link", "set", f"{LINK}-b", "netns", name)
            for order in (f"addr add {address}/24 dev {LINK}-{end}", f"link set {LINK}-{end} up", "link set lo up"):
                _ip("-n", name, *order.split())
        ray = str(Path(sys.executable).with_name("ray"))
        head = ["--head", f"--port={PORT}", "--include-dashboard=false"]
        for at, which in enumerate((head, [f"--address={ADDRESSES[0]}:{PORT}"])):
            order = [ray, "start", *which, f"--node-ip-address={ADDRESSES[at]}", "--num-cpus=1", "--block"]
            path = self.folder / f"ray-{at}.log"
            log = path.open("w")
            self.programs.append(self.begin(at, order, stdout=log, stderr=subprocess.STDOUT, start_new_session=True))
            self._wait(path)
        return self

    @staticmethod
    def _wait(log):
        end = time.monotonic() + 60
        while "runtime started" not in log.read_text():
            if time.monotonic() > end:
                raise RuntimeError(f"Ray did not start: {log.read_text()[-2000:]}")
            time.sleep(0.2)

    def __exit__(self, *error):
        self._remove()
        for program in self.programs:
            program.wait(30)

    def begin(self, at, order, **options):
        """Start a program on that host: the second one has a /tmp of its own, and no runs of the first."""
        text = f'mount -t tmpfs none {self.folder} && mount -t tmpfs none /tmp && exec "$@"'
        alone = ["unshare", "--mount", "sh", "-c", text, "sh"] if at else []
        environment = {**os.environ, **HEALTH, "RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1",
                       "RAY_ADDRESS": f"{ADDRESSES[0]}:{PORT}"}  # fmt: skip
        return subprocess.Popen(["ip", "netns", "exec", NAMES[at], *alone, *order], env=environment, **options)

    def start(self, recipe, folder):
        """A run on the first host, whose workers are on both."""
        wayfare = str(Path(sys.executable).with_name("wayfare"))
        order = [wayfare, "run", str(recipe), "--out", str(folder), "--engine", "flower", "--track", "none", "--json"]
        log = folder.with_suffix(".log").open("w")
        return self.begin(0, order, stdout=subprocess.PIPE, stderr=log, text=True)

    def cut(self):
        _ip("-n", NAMES[1], "link", "set", f"{LINK}-b", "down")

    def worked(self, at):
        """Seconds of processor time of the workers on that host."""
        spent = 0.0
        for process in _processes(at):
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
            if Path(f"/proc/{process}/cmdline").read_bytes().startswith(b"ray::ClientAppActor"):
                spent += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        return spent

    def _remove(self):
        for at, name in enumerate(NAMES):
            for process in _processes(at):
                subprocess.run(["kill", "-9", process], capture_output=True)
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


def _ip(*order):
    subprocess.run(["ip", *order], check=True, capture_output=True, text=True)


def _processes(at):
    """The numbers of what runs on that host, and on no other."""
    found = subprocess.run(["ip", "netns", "pids", NAMES[at]], capture_output=True, text=True)
    return found.stdout.split()


def measure(quick, out):
    """The models of the local engine, of both hosts, and of one that is cut off; and how long rounds took."""
    folder = out / "hosts"
    folder.mkdir(parents=True)
    found = {"rounds": 6, "runs": {}}
    for strategy, kinds in (("fedavg", ("whole", "cut")), ("scaffold", ("cut",))):  # the second one has memories
        recipe = folder / f"{strategy}.toml"
        recipe.write_text(RECIPE.format(rounds=found["rounds"], strategy=strategy))
        wayfare = [str(Path(sys.executable).with_name("wayfare")), "run", str(recipe), "--engine", "local"]
        order = [*wayfare, "--out", str(folder / f"{strategy}-local"), "--track", "none", "--json"]
        done = subprocess.run(order, capture_output=True, text=True, check=True, timeout=LIMIT)
        model = json.loads(done.stdout)["model_sha256"]
        for kind in kinds:
            with Hosts(folder) as hosts:
                run = _played(hosts, recipe, folder / f"{strategy}-{kind}", kind == "cut")
            found["runs"][f"{strategy}, {kind}"] = {**run, "expected": model}
    return found


def _played(hosts, recipe, folder, is_cut):
    """A run on both hosts; if it is to be cut, the link goes when the second round is on record."""
    program, worked = hosts.start(recipe, folder), [0.0, 0.0]
    cut_at, end, record = 0.0, time.monotonic() + LIMIT, folder / "rounds.jsonl"
    while program.poll() is None and time.monotonic() < end:
        time.sleep(0.2)
        worked = [max(before, hosts.worked(at)) for at, before in enumerate(worked)]
        if is_cut and not cut_at and record.exists() and record.read_bytes().count(b"\n") >= 3:
            hosts.cut()
            cut_at = time.monotonic()
    program.kill()
    said = program.communicate()[0]
    try:
        summary = json.loads(said)
    except ValueError:
        summary = {"model_sha256": None}
    lines = [json.loads(line) for line in record.read_text().splitlines()] if record.exists() else []
    return {
        "model": summary["model_sha256"], "refused": summary.get("refused"), "was_cut": bool(cut_at),
        "seconds": [round(line["seconds"], 1) for line in lines if line.get("round")], "worked": worked,
    }  # fmt: skip


def targets(figures):
    runs = figures["runs"]
    different = sum(run["model"] != run["expected"] for run in runs.values())
    cut = [run for name, run in runs.items() if name.endswith("cut")]
    idle = sum(seconds == 0 for run in runs.values() for seconds in run["worked"])
    refused = sum(run["refused"] or 0 for run in runs.values())
    return [
        {"name": f"two hosts: models that differ from the local engine's, of {len(runs)}", "value": different,
         "target": "0", "met": different == 0},
        {"name": "two hosts: runs in which the link was cut", "value": sum(run["was_cut"] for run in cut),
         "target": str(len(cut)), "met": all(run["was_cut"] for run in cut)},
        {"name": "two hosts: hosts that did no work", "value": idle, "target": "0", "met": idle == 0},
        {"name": "two hosts: replies lost", "value": refused, "target": "0", "met": refused == 0},
    ]  # fmt: skip


def show(figures, console):
    for name, run in figures["runs"].items():
        same = "the local model" if run["model"] == run["expected"] else f"another model: {run['model']}"
        worked = " and ".join(f"{seconds:.0f} s" for seconds in run["worked"])
        console.print(f"{name}: {same}; rounds of {run['seconds']} s; the hosts' workers worked {worked}", markup=False)
