"""What happens when devices meet: the contracts between the topology `encounters`, its policies and their predictors.

Everything is an array with one entry per device (a column) or per direction of a meeting, so that the same lines
serve thousands of simulated devices at once and one real device (`encounters/alone.py`): it is device 0, its columns
have one entry, and in each of its meetings there is one direction, its own. What a peer says of itself is in the
`Meeting`; a peer's place in a column must not be looked up, as a real device does not have it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np

PEER = "@peer"  # section "model@peer" of a message is the model that a peer sent

Columns = dict[str, np.ndarray]
"""What devices keep about themselves. The topology keeps

    score      Q, the accuracy of the device's model on its probe pictures; NaN while it is not known
    can_send   transmissions left (txn)            sent    transmissions made
    can_take   receptions left (rxn)               taken   receptions made

and a policy adds columns of its own (`threshold`, ...). The topology never lets a device exceed what is left."""


@dataclass(frozen=True)
class DeviceFacts:
    """What is known of the devices from the beginning, one entry (or row) per device."""

    limit: np.ndarray  # L, how many transmissions and receptions together (Eq. 6); int64
    score: np.ndarray  # Q at the beginning; NaN if the policy does without
    examples: np.ndarray  # training samples held; int64
    labels: np.ndarray  # how many of each class, int64 (devices, classes)
    targets: np.ndarray  # O_c, the classes its owner cares about, bool (devices, classes), Eq. 4
    stationary: np.ndarray  # signage: a model, no data; bool
    published: tuple[float, float, float] | None = None
    """The lowest, median and highest accuracy of all devices, where these entries are not all of them and somebody
    has said so: a signage device, an invitation, or what was heard on a previous day (`meeting/published.py`)."""


@dataclass(frozen=True)
class Meeting:
    """Devices that meet in one slot. Each pair is there in both directions: `me` hears the offer of `peer`."""

    slot: int
    me: np.ndarray  # int64: numbers of devices, which are positions in a column
    peer: np.ndarray
    announced: np.ndarray  # bool: the peer has announced itself (it can still send)
    score: np.ndarray  # what the peer says its accuracy is; NaN if it does not say
    chance: np.ndarray  # one number in [0, 1) per pair, the same in both directions
    begins: np.ndarray  # bool: the contact begins in this slot
    same_model: np.ndarray  # bool: both hold the very same model (the digests they announce are equal)
    facts: DeviceFacts
    merged_accuracy: Callable[[np.ndarray, np.ndarray], np.ndarray]
    """The true accuracy of `me` after merging with `peer`, for each of these; only an oracle can do it."""


@dataclass(frozen=True)
class Decision:
    """What each direction of a meeting decides."""

    asks: np.ndarray  # bool: `me` asks for the peer's model
    predicted: np.ndarray  # the accuracy it expects to have then; NaN where it has no idea


@dataclass(frozen=True)
class MergeOutcome:
    """Merges that happened in a slot, before anything is accepted."""

    slot: int
    me: np.ndarray
    peer: np.ndarray
    before: np.ndarray  # Q before and after, on the probe; NaN where the policy does not ask for it
    after: np.ndarray
    own_before: np.ndarray  # the same on the device's own held-out pictures; NaN where not asked for or none are held
    own_after: np.ndarray
    predicted: np.ndarray  # what was expected of each merge (Decision.predicted); NaN where there was no idea


@runtime_checkable
class Predictor(Protocol):
    """How good would my model be after merging with this peer's?"""

    def predict(self, mine: np.ndarray, meeting: Meeting) -> np.ndarray:
        """The accuracy each `me` would have; `mine` is the accuracy it has."""


class Exchange(Protocol):
    """A policy of exchanges: who asks for whose model, and what becomes of it. A frozen dataclass of settings."""

    @property
    def limit(self) -> int:
        """L; a plain field will do. -1: no limit."""

    scored: ClassVar[bool]  # devices must know how good their models are, at the beginning and after each merge
    guarded: ClassVar[bool]  # devices also try a merge on pictures of their own before they adopt it
    delegates: ClassVar[bool]  # the peer trains my model on its pictures, which then replaces mine

    def predictor(self, laboratory: Laboratory) -> Predictor | None:
        """What it predicts with, made before the tour begins; None if it does not predict."""

    def begin(self, facts: DeviceFacts) -> Columns:
        """`can_send`, `can_take` and the policy's own columns."""

    def delegated_steps(self) -> int:
        """If it delegates: steps that the peer trains my model, and then I."""

    def hear(self, columns: Columns, meeting: Meeting) -> Columns:
        """The policy's own columns after a slot's announcements, before anybody asks (only those that changed)."""

    def avoided(self, columns: Columns, meeting: Meeting) -> np.ndarray:
        """Pairs that keep away from each other in this slot, bool; `decide` asks none of them."""

    def decide(self, columns: Columns, meeting: Meeting, predictor: Predictor | None) -> Decision:
        """Who asks; a pure function of what it is given."""

    def accept(self, columns: Columns, outcome: MergeOutcome) -> np.ndarray:
        """Which merges are kept, bool; the others leave the device with the model it had."""

    def update(self, columns: Columns, outcome: MergeOutcome, adopted: np.ndarray) -> Columns:
        """The policy's own columns afterwards (only those that changed)."""


class Laboratory(Protocol):
    """Where models are made and merged to learn from, before the tour: FedTour, Sect. IV-A."""

    @property
    def labels(self) -> np.ndarray:
        """The class of each picture that may be trained on; a position in it is what `train` wants."""

    @property
    def classes(self) -> int: ...

    def train(self, samples: Sequence[np.ndarray]) -> Sequence[Any]:
        """A model for each of these sets of pictures, from the common base; an empty set gives the base itself."""

    def mixed(self, models: Sequence[Any], groups: Sequence[np.ndarray]) -> Sequence[Any]:
        """The mean of each group of models, as models of their own."""

    def merged(self, models: Sequence[Any], pairs: np.ndarray) -> np.ndarray:
        """The accuracy of the mean of each pair of models, (pairs,); a pair (i, i) is model i itself."""

    def rng(self, purpose: str) -> np.random.Generator: ...

    @property
    def key(self) -> str:
        """Names everything a result depends on (data, network, training, seed): results may be kept under it."""
