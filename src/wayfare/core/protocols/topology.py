"""Who talks to whom."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from wayfare.core.bundle import Bundle, Weights

if TYPE_CHECKING:
    from wayfare.core.federation import Federation, Round


class Topology:
    """Who talks to whom: a generator of rounds that continues from any state. Inherit from it, as from `Task`."""

    meets: ClassVar[bool] = False  # devices exchange models with each other: an [exchange] policy is needed
    reserve: int = 0  # samples of the pool that the topology keeps: no client gets them
    timed: ClassVar[bool] = False  # it can keep the virtual time of a [clock]
    overlaps: ClassVar[bool] = False  # devices train from unlike models at the same time: it needs a [clock]

    @property
    def round_is_slot(self) -> bool:
        """Whether a round is one slot of a day."""
        return False

    @property
    def needs_groups(self) -> bool:
        """Whether clients are to be in the data's own groups."""
        return False

    def check(self, clients: int) -> None:
        """Refuse what cannot be done with this many clients."""

    def length(self, clients: int) -> int | None:
        """All the rounds there are, where that is known; `rounds = 0` then takes all of them."""
        return None

    def doubt(self, lines: Sequence[Mapping[str, Any]]) -> str:
        """What to tell the user of a run in which nothing was exchanged; `lines` are those of its rounds."""
        rounds = [line for line in lines if line["round"]]
        if not rounds or not all(line["void"] for line in rounds):
            return ""
        reasons = Counter(refusal["reason"] for line in rounds for refusal in line["refused"])
        why = f"; most replies were refused: {reasons.most_common(1)[0][0]}" if reasons else ""
        return f"nothing was learnt: all {len(rounds)} rounds were void{why}"

    def start(self, federation: Federation, state: Bundle) -> Bundle:
        """The topology's own state around the strategy's."""
        raise NotImplementedError

    def rounds(self, federation: Federation, state: Bundle, first: int) -> Iterator[Round]:
        """The rounds from `first` on."""
        raise NotImplementedError

    def expected(self, federation: Federation) -> int:
        """How many clients are asked in a round, on average; 0 where that is not one number."""
        return 0

    def next_requests(self, federation: Federation, state: Bundle, round: int) -> Iterable[tuple[str, Bundle]] | None:
        """What devices are asked in this round if this is the state before it; None if that is not known yet."""
        return None

    def evaluate(self, federation: Federation, round: Round) -> bool:
        """Evaluate the models of devices, where there is no one model. False: there is one, the runner evaluates it."""
        return False

    def final_model(self, federation: Federation, state: Bundle) -> tuple[Weights, str] | None:
        """The model to use, and a digest of all models, where there are several; None where the state has the one."""
        return None
