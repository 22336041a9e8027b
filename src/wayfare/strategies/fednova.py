"""FedNova (Wang et al., 2020): who takes more local steps does not pull harder.

    tau_eff = sum_k p_k tau_k         p_k = n_k / N, tau_k the steps that client k took
    w      <- w + tau_eff sum_k p_k (w_k - w) / tau_k

Running statistics take the plain mean. Clients should train with plain SGD: with momentum, steps count differently.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar

from wayfare.core.bundle import Bundle, Weights, mean
from wayfare.strategies.fedavg import FedAvg


@dataclass(frozen=True)
class FedNova(FedAvg):
    """Normalised averaging, for clients that take unequal numbers of steps with plain SGD."""

    topologies: ClassVar[frozenset[str]] = frozenset({"server", "buffered"})  # a group's server reports no steps

    def merge(self, state: Bundle, replies: Iterable[tuple[str, Bundle]]) -> Bundle:
        old, taken = state["model"], list[tuple[float, float]]()

        def per_step() -> Iterator[tuple[float, Weights]]:
            for _, reply in replies:
                share, steps = self.weight(reply.number("n")), max(reply.number("steps"), 1)
                taken.append((share, steps))
                model = reply["model"]
                yield share, {n: w if _is_running(n) else (w - old[n]) / steps for n, w in model.items()}

        change = mean(per_step())
        effective = sum(share * steps for share, steps in taken) / sum(share for share, _ in taken)
        model = {n: change[n] if _is_running(n) else w + effective * change[n] for n, w in old.items()}
        return state.with_(model=model)


def _is_running(name: str) -> bool:
    return name.rpartition(".")[2].startswith("running_")
