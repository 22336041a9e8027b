"""Strategies with one deliberate fault each. None of them crashes, and each trains to a plausible accuracy."""

from dataclasses import dataclass

import torch

from wayfare.core.bundle import Bundle, mean, travelling
from wayfare.strategies.fedavg import FedAvg

_SEEN = {}


@dataclass(frozen=True)
class HiddenInSelf(FedAvg):
    """A server momentum kept in the object."""

    def merge(self, state, replies):
        model = self.average(replies)
        previous = self.__dict__.get("_previous", model)
        object.__setattr__(self, "_previous", model)
        return state.with_(model={k: 0.9 * v + 0.1 * previous[k] for k, v in model.items()})


@dataclass(frozen=True)
class HiddenInModule(FedAvg):
    """MOON's previous model in a module's dictionary: it works in one process, and only there."""

    def client(self, device, message):
        reply = super().client(device, message)
        previous = _SEEN.get(device.id, reply["model"])
        _SEEN[device.id] = reply["model"]
        return reply.with_(model={k: 0.9 * v + 0.1 * previous[k] for k, v in reply["model"].items()})


@dataclass(frozen=True)
class HiddenInMerge(FedAvg):
    """A random server step from the global generator."""

    def merge(self, state, replies):
        model = self.average(replies)
        return state.with_(model={k: v + 1e-3 * torch.randn_like(v) for k, v in model.items()})


@dataclass(frozen=True)
class DependsOnOrder(FedAvg):
    """Later replies count more."""

    def merge(self, state, replies):
        return state.with_(model=mean((1.0 + i, reply["model"]) for i, (_, reply) in enumerate(replies)))


@dataclass(frozen=True)
class NoGradient(FedAvg):
    """A proximal term whose anchor is the live parameter: its value is right, its gradient is zero."""

    def extra(self, device, net, message):
        pairs = [(p, p) for p in net.parameters()]
        return lambda output, batch: 0.01 * sum((p - anchor).square().sum() for p, anchor in pairs)


@dataclass(frozen=True)
class AttributeMemory(FedAvg):
    """The previous model as an attribute of the device, which is gone after the call."""

    def client(self, device, message):
        reply = super().client(device, message)
        device.previous = reply["model"]
        return reply


@dataclass(frozen=True)
class LiveMemory(FedAvg):
    """The memory is the network itself, not a copy."""

    def client(self, device, message):
        net = device.network(message["model"])
        result = device.train(net, message)
        device.memory = Bundle({"previous": {k: v.detach() for k, v in travelling(net).items()}})
        return Bundle({"model": {k: v.detach().clone() for k, v in travelling(net).items()}}, result)


@dataclass(frozen=True)
class ChangesMessage(FedAvg):
    """Clips the received weights in place."""

    def resume(self, device, message):
        return {k: v.mul_(0.99) for k, v in message["model"].items()}


@dataclass(frozen=True)
class ChangesState(FedAvg):
    """Merges into the state it was given."""

    def merge(self, state, replies):
        for name, value in self.average(replies).items():
            state["model"][name].copy_(value)
        return Bundle({"model": {k: v.clone() for k, v in state["model"].items()}}, dict(state.values))


@dataclass(frozen=True)
class UndeclaredSection(FedAvg):
    """Sends more than it says."""

    def client(self, device, message):
        reply = super().client(device, message)
        return reply.with_(statistics={"mean": torch.zeros(3)})


class MutableSettings(FedAvg):
    """Settings that can change while it runs."""

    __dataclass_params__ = dataclass(type("Loose", (), {})).__dataclass_params__
