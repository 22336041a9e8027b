"""PLFedCMH (ICASSP 2023), based on pFedLA (CVPR 2022): each client gets its own layer-wise mixture of all models.

The server keeps the last model W_k of every client, and for each client and view a small hypernetwork f:
    embedding -> 3 x (linear, ReLU) -> for each layer l: linear, ReLU = alpha_l, one number per client
    W_l = sum_k (alpha_lk / sum_j alpha_lj) W_lk      sent to the client; if alpha_l is all 0, its own layer
A client trains this mixture, and f takes one step that moves the mixture towards the result:
    f <- f - lr (dW/df)' (W sent - W trained)
The published code has the opposite sign, which moves a client away from its optimum; `compat_sign` selects it.
Client, in addition to the task's loss, with class prototypes P of the hash layer's output (h, before any tanh):
    ( beta |r L - tanh(h) P'|^2 + lambda MSE(h, P of its classes) ) / (n B)      for n samples, batches of B, r bits
A class without a prototype adds nothing.

In the published code a client's mixture already contains what earlier clients sent in the same round. Here all mixtures
use the models of the previous rounds, so that the order of the clients does not matter. The server's state holds one
model per client that has taken part: `most` limits their number.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from wayfare.core.bundle import Bundle, Weights, digest
from wayfare.core.device import Device
from wayfare.core.errors import ConfigError
from wayfare.core.protocols import Batch, Extra, Output, Task
from wayfare.core.seeds import rng_for
from wayfare.strategies.fedavg import FedAvg
from wayfare.strategies.fedproto import FedProto, multi_hot, prototypes

_HIDDEN = 3  # layers of a hypernetwork before its last ones


@dataclass(frozen=True)
class PLFedCMH(FedAvg):
    """A model for every client, mixed by a hypernetwork on the server."""

    lr: float = 1e-3  # learning rate of the hypernetworks
    width: int = 32  # width of a hypernetwork's embedding and layers
    compat_sign: bool = False  # the sign of the published code
    beta: float = 0.5  # weight of the term that fits codes to prototypes; 0 leaves it out
    lam: float = 1e5  # weight of the distance between outputs and prototypes; 0 leaves it out
    mean: Literal["counts", "clients"] = "clients"  # mean of prototypes: weighted by samples, or all clients equally
    most: int = 100  # most clients

    requires: ClassVar[frozenset[str]] = frozenset({"features", "classes"})
    topologies: ClassVar[frozenset[str]] = frozenset({"server"})
    personal: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for name, least in (("lr", 0.0), ("width", 1), ("beta", 0.0), ("lam", 0.0), ("most", 1)):
            if not getattr(self, name) >= least:
                raise ConfigError(f"strategy.{name} = {getattr(self, name)}: expected at least {least:g}")

    # ---- the server

    def start(self, task: Task, net: nn.Module) -> Bundle:
        state = FedProto().start(task, net)
        # like networks, hypernetworks start from other random weights in every run
        return Bundle(state.tensors, {"views": ",".join(task.views(net)), "origin": digest(state["model"])[:16]})

    def send(self, state: Bundle, device: str) -> Bundle:
        clients = int(state.number("population"))
        if clients > self.most:
            raise ConfigError(
                f"plfedcmh would keep a model of each of the {clients} clients on the server, but the limit is "
                f"strategy.most = {self.most}: take fewer clients, or raise it if there is memory and disk for them"
            )
        return state.only("prototypes", "counts").with_(model=self.mixture(state, device))

    def expects(self, state: Bundle) -> dict[str, Weights]:
        return {"model": state["model"], "prototypes": state["prototypes"], "counts": state["counts"]}

    def merge(self, state: Bundle, replies: Iterable[tuple[str, Bundle]]) -> Bundle:
        held = sorted(replies, key=lambda pair: pair[0])  # columns go to newcomers in this order
        after = FedProto(mean=self.mean).merge(state, held).with_(model=self.average(held))  # a newcomer's first model
        sections, values = dict(after.tensors), dict(after.values)
        for device, reply in held:
            if _hyper(device) in state:
                sections[_hyper(device)] = self.updated(state, device, reply["model"])
            else:
                values[_column(device)] = sum(name.startswith(_column("")) for name in values)
                sections[_hyper(device)] = self.fresh(state, device)
            sections[_client(device)] = reply["model"]
        return Bundle(sections, values)

    def fresh(self, state: Bundle, device: str) -> Weights:
        """A client's hypernetworks before their first step."""
        clients, made = int(state.number("population")), Weights()
        for view, layers in _layers(state).items():
            rng, w, bound = rng_for(str(state.values["origin"]), device, view), self.width, 1 / math.sqrt(self.width)
            made[f"{view}/embedding"] = torch.from_numpy(rng.standard_normal(w)).float()
            made[f"{view}/weight"] = torch.from_numpy(rng.uniform(-bound, bound, (_HIDDEN, w, w))).float()
            made[f"{view}/bias"] = torch.from_numpy(rng.uniform(-bound, bound, (_HIDDEN, w))).float()
            made[f"{view}/last weight"] = torch.from_numpy(rng.uniform(0, 1, (len(layers), clients, w))).float()
            made[f"{view}/last bias"] = torch.zeros(len(layers), clients)
        return made

    def mixture(self, state: Bundle, device: str) -> Weights:
        """The model sent to a client: its mixture of all models or, in its first round, the last round's mean."""
        if _hyper(device) not in state:
            return state["model"]
        models = _models(state)
        shares = {layer: row.tolist() for layer, row in layer_shares(state, device, state[_hyper(device)]).items()}
        mixed = Weights()
        for name, like in state["model"].items():
            total = torch.zeros_like(like, dtype=torch.float64)
            for share, model in zip(shares[_layer(name)], models):
                if share:
                    total.add_(model[name].double(), alpha=share)
            mixed[name] = total.to(like.dtype)
        return mixed

    def updated(self, state: Bundle, device: str, trained: Weights) -> Weights:
        """A client's hypernetworks after one step."""
        sent, models = self.mixture(state, device), _models(state)
        pulls: dict[str, Tensor] = {}  # per layer: the derivative of <W, sent - trained> by each share
        for name, weights in sent.items():
            gap = weights.double() - trained[name].double()
            row = torch.tensor([_product(model[name], gap) for model in models])
            pulls[_layer(name)] = pulls[_layer(name)] + row if _layer(name) in pulls else row
        hyper = {name: t.clone().requires_grad_() for name, t in state[_hyper(device)].items()}
        shares = layer_shares(state, device, hyper)
        value = torch.stack([(shares[layer] * pull.to(shares[layer])).sum() for layer, pull in pulls.items()]).sum()
        gradients = torch.autograd.grad(value, list(hyper.values()), allow_unused=True)
        step = -self.lr if self.compat_sign else self.lr
        return {
            name: t.detach() - step * g if g is not None else t.detach()
            for (name, t), g in zip(hyper.items(), gradients)
        }

    # ---- the client

    def extra(self, device: Device, net: nn.Module, message: Bundle) -> Extra | None:
        known = (message["counts"]["counts"] > 0).float()
        if not (self.beta or self.lam) or not known.any():
            return None
        samples = len(device.client.train)

        def term(output: Output, batch: Batch) -> Tensor:
            total = next(iter(output.features.values())).new_zeros(())
            for view, h in output.features.items():
                mask = known.to(h)
                labels, targets = multi_hot(batch, len(known)).to(h) * mask, message["prototypes"][view].to(h)
                if self.beta:
                    answers = (h.shape[1] * labels - h.tanh() @ targets.T) * mask
                    total = total + self.beta * answers.square().sum() / (samples * len(h))
                if self.lam:
                    share = labels / labels.sum(1, keepdim=True).clamp(min=1)  # a sample's labels weigh the same
                    error = (share * (h[:, None] - targets).square().mean(2)).sum() / len(h)
                    total = total + self.lam * error / (samples * len(h))
            return total

        return term

    def client(self, device: Device, message: Bundle) -> Bundle:
        reply = super().client(device, message)
        net = device.network(reply["model"]).eval()
        return reply.with_(**prototypes(device.task, net, device, message))


def layer_shares(state: Bundle, device: str, hyper: Weights) -> dict[str, Tensor]:
    """The share of each known client's layer in this client's layer, in the order of the columns."""
    columns = _columns(state)
    own = torch.tensor([other == device for other in columns]).float()
    found: dict[str, Tensor] = {}
    for view, layers in _layers(state).items():
        x = hyper[f"{view}/embedding"]
        for weight, bias in zip(hyper[f"{view}/weight"], hyper[f"{view}/bias"]):
            x = torch.relu(weight @ x + bias)
        alphas = torch.relu(hyper[f"{view}/last weight"] @ x + hyper[f"{view}/last bias"])[:, list(columns.values())]
        for layer, alpha in zip(layers, alphas):
            found[layer] = alpha / alpha.sum() if alpha.any() else own
    return found


def _layers(state: Bundle) -> dict[str, list[str]]:
    """The layers of each view, by the view's name in theirs; layers of no view form a group of their own."""
    views = str(state.values["views"]).split(",")
    found: dict[str, list[str]] = {}
    for layer in dict.fromkeys(map(_layer, state["model"])):
        view = next((view for view in views if view in layer.split(".")), "")
        found.setdefault(view, []).append(layer)
    return found


def _layer(name: str) -> str:
    """The layer of a weight: its name without the last part."""
    return name.rpartition(".")[0]


def _client(device: str) -> str:
    return f"client:{device}"


def _hyper(device: str) -> str:
    return f"hyper:{device}"


def _column(device: str) -> str:
    return f"column:{device}"


def _columns(state: Bundle) -> dict[str, int]:
    """The column of each client that has taken part, in order."""
    start = _column("")
    places = [(int(value), name) for name, value in state.values.items() if name.startswith(start)]
    return {name.removeprefix(start): place for place, name in sorted(places)}


def _models(state: Bundle) -> list[Weights]:
    return [state[_client(device)] for device in _columns(state)]


def _product(left: Tensor, right: Tensor) -> float:
    """<left, right>; NumPy's sum is the same on any number of threads."""
    return float((left.double() * right).cpu().numpy().sum())
