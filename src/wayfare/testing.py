"""Checks that every strategy and task must pass, ours or yours: `check_strategy(MyStrategy())`, `check_task(MyTask())`.

Each check looks for one kind of fault that goes unnoticed in ordinary use: hidden state, a result that depends on the
order of replies, a term without a gradient, memory that does not survive, messages that do not travel. A fault raises
NonConformance, which says what was seen and what to do.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from wayfare.core.bundle import Bundle, digest, snapshot
from wayfare.core.device import Bench, Device
from wayfare.core.errors import WayfareError
from wayfare.core.gate import Refusal, admit
from wayfare.core.protocols import Client, Engine, Evaluation, Failure, Policy, Strategy, Task, Training
from wayfare.core.seeds import rng_for
from wayfare.core.values import METRIC, fault_of, metric_values
from wayfare.engines.programs import perform
from wayfare.experiment import Experiment
from wayfare.hashing.task import Hashing
from wayfare.objects.models import CnnClassifier
from wayfare.objects.task import Objects
from wayfare.partition.random import Random
from wayfare.partition.shards import Shards
from wayfare.runner import resume, run
from wayfare.topologies.server import Server

CLIENTS = 4


class NonConformance(WayfareError):
    """A component that breaks its contract."""


def check_strategy(strategy: Strategy, task: Task | None = None) -> list[str]:
    """Run every check on a strategy; returns the names of the checks that passed."""
    task = task or task_for(strategy)
    passed = []
    for check in STRATEGY_CHECKS:
        with tempfile.TemporaryDirectory() as folder, _quietly():
            check(_Lab(strategy, task, Path(folder)))
        passed.append(check.__name__)
    return passed


def task_for(strategy: Strategy) -> Task:
    """A small task of ours that has what a strategy needs."""
    objects = Objects(model=CnnClassifier(width=4, hidden=8))
    return objects if strategy.requires <= objects.provides else Hashing.example()


def check_task(task: Task) -> list[str]:
    """Run every check on a task; returns the names of the checks that passed."""
    passed = []
    for check in TASK_CHECKS:
        with _quietly():
            check(task)
        passed.append(check.__name__)
    return passed


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """One thread, as on every device, and the caller's random numbers and threads as they were."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng():
            yield
    finally:
        torch.set_num_threads(threads)


def _dealt(task: Task) -> Shards | Random:
    """Clients that are unlike each other, where there are labels to deal out by."""
    return Random(CLIENTS) if task.labels is None else Shards(CLIENTS, classes_per_client=min(3, len(task.classes)))


class _Lab:
    """A small federation whose every step can be looked at."""

    def __init__(self, strategy: Strategy, task: Task, folder: Path) -> None:
        self.strategy, self.task, self.folder = strategy, task, folder
        self.experiment = Experiment(
            task=task,
            strategy=strategy,
            partition=_dealt(task),
            training=Training(iterations=4, batch_size=16, lr=0.02),
            evaluation=Evaluation(every=0, holdout=0.0),
            topology=Server(),
            rounds=3,
        )
        self.bench: Bench = self.experiment.bench(folder)
        self.ids = [self.bench.population.id(i) for i in range(len(self.bench.population))]
        start = strategy.start(task, self.bench.loaded(0, self.bench.initial))
        self.state = Bundle(start.tensors, {**start.values, "population": len(self.ids)})

    def request(self, id: str, round: int) -> Bundle:
        message = self.strategy.send(self.state, id)
        return Bundle(message.tensors, {**message.values, "round": round})

    def reply(self, id: str, round: int) -> Bundle:
        reply = perform(self.bench, "train", id, self.request(id, round))
        if isinstance(reply, Failure):
            raise NonConformance(f"training fails on device {id!r}: {reply.reason}\n{reply.detail}")
        return reply

    def round(self, round: int) -> list[tuple[str, Bundle]]:
        """One round; returns its replies."""
        replies = [(id, self.reply(id, round)) for id in self.ids]
        self.state = self.strategy.merge(self.state, iter(replies))
        return replies

    def device(self, id: str, round: int) -> Device:
        return self.bench.device(id, round, round - 1)


def _same(left: Bundle, right: Bundle) -> bool:
    return (
        left.values == right.values
        and left.tensors.keys() == right.tensors.keys()
        and all(digest(left[name]) == digest(right[name]) for name in left.tensors)
    )


def _copy(bundle: Bundle) -> Bundle:
    return Bundle.unpack(bundle.pack())


# ---- strategies


def settings_are_frozen(lab: _Lab) -> None:
    """Hyper-parameters are a frozen dataclass that survives TOML."""
    strategy = lab.strategy
    given = getattr(type(strategy), "__dataclass_params__", None)  # what @dataclass was called with, if it was
    if given is None or not given.frozen:
        raise NonConformance(f"{type(strategy).__name__} must be a frozen dataclass: @dataclass(frozen=True)")
    if Experiment.from_toml(lab.experiment.to_toml()).strategy != strategy:
        raise NonConformance(f"{strategy} does not survive TOML: its fields must be numbers, text or booleans")


def holds_no_state(lab: _Lab) -> None:
    """The same call gives the same result, and leaves the strategy and its arguments as they were."""
    lab.round(1)
    before, state = dict(vars(lab.strategy)), _copy(lab.state)
    device = lab.ids[0]
    first, second = lab.reply(device, 2), lab.reply(device, 2)
    if not _same(first, second):
        raise NonConformance("client() gives another result when called again: it hides state; use device.memory")
    replies = [(id, lab.reply(id, 2)) for id in lab.ids]
    copies = [_copy(reply) for _, reply in replies]
    merged, again = (lab.strategy.merge(lab.state, iter(replies)) for _ in range(2))
    if not _same(merged, again):
        raise NonConformance("merge() gives another result when called again: it hides state; keep it in the state")
    if vars(lab.strategy) != before:
        raise NonConformance("the strategy object changed during a round: state belongs in the state or device.memory")
    if not _same(lab.state, state):
        raise NonConformance("merge() or send() changed the state it was given: return a new one")
    if not all(_same(reply, copy) for (_, reply), copy in zip(replies, copies)):
        raise NonConformance("merge() changed a reply it was given")


def message_stays_whole(lab: _Lab) -> None:
    """A client does not write into the message, which other devices read too."""
    lab.round(1)
    message = lab.request(lab.ids[0], 2)
    copy = _copy(message)
    perform(lab.bench, "train", lab.ids[0], message)
    if not _same(message, copy):
        raise NonConformance("client() changed the message it was given: clone what you change")


def order_does_not_matter(lab: _Lab) -> None:
    """merge() gives the same up to rounding in any order, unless the strategy declares `ordered`."""
    if lab.strategy.ordered:
        return
    lab.round(1)
    replies = [(id, lab.reply(id, 2)) for id in lab.ids]
    one, other = lab.strategy.merge(lab.state, iter(replies)), lab.strategy.merge(lab.state, reversed(replies))
    for section in one.tensors:
        for name, tensor in one[section].items():
            if not torch.allclose(tensor, other[section][name], rtol=1e-4, atol=1e-6):
                raise NonConformance(
                    f"merge() depends on the order of replies in {section}/{name}: declare `ordered = True` if it must"
                )


def terms_have_gradients(lab: _Lab) -> None:
    """A term beside the task's loss changes the gradient once the weights have moved."""
    lab.round(1)
    for id in lab.ids:
        device, message = lab.device(id, 2), lab.request(id, 2)
        net = device.network(lab.strategy.resume(device, message))
        term = lab.strategy.extra(device, net, message)
        if term is None:
            continue
        generator = torch.Generator().manual_seed(0)
        parameters = [p for p in net.parameters() if p.requires_grad]
        with torch.no_grad():
            for p in parameters:
                p.add_(0.05 * torch.randn(p.shape, generator=generator).to(p.device))
        batch = next(lab.task.steps(net, device.client, 16, {}, rng_for(0)))
        value = term(lab.task.forward(net, batch), batch)
        gradients = torch.autograd.grad(value, parameters, allow_unused=True) if value.requires_grad else [None]
        if not any(g is not None and bool(g.abs().sum() > 0) for g in gradients):
            raise NonConformance("extra() has no gradient: is its anchor built from live parameters without detach()?")


def memory_is_the_only_memory(lab: _Lab) -> None:
    """What a device keeps is in device.memory: anything else is gone when the call ends."""
    for round in (1, 2):
        for id in lab.ids:
            device = lab.device(id, round)
            before = set(vars(device))
            lab.strategy.client(device, lab.request(id, round))
            extra = set(vars(device)) - before
            if extra:
                raise NonConformance(
                    f"client() sets {sorted(extra)} on the device; they do not survive: use device.memory"
                )
        lab.round(round)


def memory_survives(lab: _Lab) -> None:
    """Memory is what was written: later training does not change it, and it survives the disk."""
    device = lab.device(lab.ids[0], 1)
    lab.strategy.client(device, lab.request(device.id, 1))
    kept = _copy(device.memory)
    device.network({name: tensor + 1 for name, tensor in lab.bench.initial.items()})
    if not _same(device.memory, kept):
        raise NonConformance("device.memory holds live parameters that change with the next training: keep clones")


def restarts_change_nothing(lab: _Lab) -> None:
    """Two rounds, a new process's worth of objects, and one more round give what three rounds give."""
    whole = run(lab.experiment, lab.folder / "whole", engine="local")
    run(replace(lab.experiment, rounds=2), lab.folder / "parts", engine="local")
    parts = resume(lab.folder / "parts", engine="local", rounds=3)
    if whole["model_sha256"] != parts["model_sha256"]:
        raise NonConformance("a run that was stopped and resumed ends in another model: something is outside the state")


def everything_travels(lab: _Lab) -> None:
    """Messages and replies that go through bytes give the same model, and the gate admits every honest reply."""
    direct = run(lab.experiment, lab.folder / "direct", engine="local")
    wired = run(lab.experiment, lab.folder / "wired", engine=_Wire())
    if direct["refused"]:
        line = (lab.folder / "direct" / "rounds.jsonl").read_text()
        raise NonConformance(f"the gate refuses honest replies; does expects() describe them? {line[:2000]}")
    if direct["model_sha256"] != wired["model_sha256"]:
        raise NonConformance("the model differs when messages travel as bytes: something is not in the Bundle")


def replies_are_lawful(lab: _Lab) -> None:
    """Replies are what expects() says, and a damaged one is refused."""
    expects = lab.strategy.expects(lab.state)
    message, id = lab.request(lab.ids[0], 1), lab.ids[0]
    reply = lab.reply(id, 1)
    lawful = partial(admit, round=1, examples=lab.experiment.task.samples, values=lab.strategy.values(lab.state))
    try:
        lawful(reply, expects, message.tensors, Policy())
    except Refusal as refusal:
        raise NonConformance(f"the gate refuses an honest reply; see expects() and values(): {refusal}") from None
    for section, weights in reply.tensors.items():
        for name, tensor in weights.items():
            if not tensor.is_floating_point() or not tensor.numel():
                continue
            broken = reply.with_(**{section: {**weights, name: torch.full_like(tensor, torch.nan)}})
            try:
                lawful(broken, expects, message.tensors, Policy())
            except Refusal:
                continue
            raise NonConformance(f"the gate admits a reply whose {section}/{name} is not a number")


def lost_memory_is_counted(lab: _Lab) -> None:
    """A device that has forgotten goes on, and the run says so."""
    run(replace(lab.experiment, rounds=2), lab.folder / "run", engine="local")
    remembered = list((lab.folder / "run" / "memory").glob("*/*"))
    for path in remembered:
        path.unlink()
    result = resume(lab.folder / "run", engine="local", rounds=3, allow_changed=["memory"])
    if remembered and result["cold"] != len(lab.ids):
        raise NonConformance(f"{len(lab.ids)} devices have lost their memory, but the run counts {result['cold']}")


STRATEGY_CHECKS: tuple[Callable[[_Lab], None], ...] = (
    settings_are_frozen,
    message_stays_whole,
    holds_no_state,
    order_does_not_matter,
    terms_have_gradients,
    memory_is_the_only_memory,
    memory_survives,
    replies_are_lawful,
    restarts_change_nothing,
    everything_travels,
    lost_memory_is_counted,
)


class _Wire(Engine):
    """The local engine as if across a process boundary: messages travel as bytes, and every call has a new bench."""

    workers = 1

    def open(self, spec: str, folder: str, bench: Callable[[], Bench]) -> None:
        self._spec, self._folder = spec, Path(folder)

    def call(
        self, program: str, requests: Iterable[tuple[str, Bundle]], deadline: float
    ) -> Iterator[tuple[str, Bundle | Failure]]:
        bench = Experiment.from_toml(self._spec).bench(self._folder)
        for id, message in requests:
            reply = perform(bench, program, id, _copy(message), deadline)
            yield id, reply if isinstance(reply, Failure) else _copy(reply)


# ---- tasks


def _client(task: Task) -> Client:
    samples = np.arange(min(120, task.samples))
    held = samples % 10 == 0
    return Client("c0", samples[~held], samples[held])


def _network(task: Task) -> nn.Module:
    torch.manual_seed(0)
    return task.network()


def pool_is_described(task: Task) -> None:
    """The pool has samples, and one label each where there are labels."""
    if task.samples <= 0:
        raise NonConformance("the task has no samples")
    if "classes" in task.provides and not task.classes:
        raise NonConformance("the task provides 'classes' but names none")
    if task.labels is not None and len(task.labels) != task.samples:
        raise NonConformance(f"{len(task.labels)} labels for {task.samples} samples")


def network_is_seeded(task: Task) -> None:
    """The same torch seed gives the same network."""
    if digest(snapshot(_network(task))) != digest(snapshot(_network(task))):
        raise NonConformance("network() gives other weights under the same torch seed")


def steps_are_seeded(task: Task) -> None:
    """The order of training depends on the generator it is given, and on nothing else."""

    def passes(seed: int) -> str:
        net, client = _network(task), _client(task)
        return digest(
            {str(i): task.loss(task.forward(net, batch), batch, {}).detach() for i, batch in
             enumerate(task.steps(net, client, 4, {}, rng_for(seed)))}
        )  # fmt: skip

    if passes(1) != passes(1):
        raise NonConformance("steps() differs under the same generator: it draws random numbers from elsewhere")
    if passes(1) == passes(2):
        raise NonConformance("steps() is the same under another generator: it does not use the one it is given")


def losses_teach(task: Task) -> None:
    """The loss is one finite number with a gradient in the network."""
    net = _network(task)
    batch = next(task.steps(net, _client(task), 8, {}, rng_for(0)))
    loss = task.loss(task.forward(net, batch), batch, {})
    loss.backward()  # type: ignore[no-untyped-call]
    if loss.ndim or not bool(torch.isfinite(loss)):
        raise NonConformance(f"loss() must be one finite number, not {loss}")
    if not any(p.grad is not None and bool(p.grad.abs().sum() > 0) for p in net.parameters()):
        raise NonConformance("loss() has no gradient in the network")


def features_are_described(task: Task) -> None:
    """The features are as wide as views() says."""
    if "features" not in task.provides:
        return
    net = _network(task)
    output = task.forward(net, next(task.scan(net, _client(task))))
    widths = {view: z.shape[1] for view, z in output.features.items()}
    if widths != task.views(net):
        raise NonConformance(f"views() says {task.views(net)}, the features are {widths}")


def scan_sees_everything(task: Task) -> None:
    """scan() gives every training sample once, in the same order each time."""
    net, client = _network(task).eval(), _client(task)
    with torch.no_grad():
        features = [
            next(iter(task.forward(net, batch).features.values())) for _ in range(2) for batch in task.scan(net, client)
        ]
    rows = torch.cat(features)
    half = len(rows) // 2
    if half != len(client.train) or not torch.equal(rows[:half], rows[half:]):
        raise NonConformance(f"scan() gave {half} rows for {len(client.train)} samples, or another order later")


def evaluation_only_looks(task: Task) -> None:
    """evaluate() gives finite numbers and leaves the network as it was."""
    net = _network(task).eval()
    before = digest(snapshot(net))
    for samples in (None, _client(task).holdout):
        metrics = task.evaluate(net, samples)
        if not metrics or not all(np.isfinite(value) for value in metrics.values()):
            raise NonConformance(f"evaluate() must give finite numbers, not {metrics}")
        declared = metric_values(task.metrics)
        if faults := [f for name, value in metrics.items() if (f := fault_of(METRIC + name, value, declared))]:
            raise NonConformance(f"evaluate() gives what `metrics` does not declare: {faults[0]}")
    if digest(snapshot(net)) != before:
        raise NonConformance("evaluate() changes the network")


TASK_CHECKS: tuple[Callable[[Any], None], ...] = (
    pool_is_described,
    network_is_seeded,
    steps_are_seeded,
    losses_teach,
    features_are_described,
    scan_sees_everything,
    evaluation_only_looks,
)

__all__ = ["STRATEGY_CHECKS", "TASK_CHECKS", "NonConformance", "check_strategy", "check_task"]
