"""What an exchange costs: time, which the contact must last; transmissions and receptions, bytes and energy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wayfare.core.exchange import Columns, Meeting
from wayfare.encounters.contacts import ContactProcess


@dataclass(frozen=True)
class RadioLink:
    """How models are sent between devices. With delegation, a device sends its model first and gets it back."""

    size: int  # bytes of what a device sends
    rate: float  # Mbit/s; 0: every exchange fits in a slot
    setup: float  # seconds until the link is up
    joules_per_megabyte: float  # for each side
    joules_per_link: float
    there_and_back: bool

    def affordable(self, columns: Columns, meeting: Meeting, asks: np.ndarray) -> np.ndarray:
        """There and back in both directions costs each side two of each: with less, only the first asks."""
        if not self.there_and_back:
            return asks
        half = len(asks) // 2
        least = np.minimum(columns["can_send"], columns["can_take"])
        poor = np.minimum(least[meeting.me[:half]], least[meeting.peer[:half]]) < 2
        return np.concatenate([asks[:half], asks[half:] & ~(asks[:half] & poor)])

    def fitting(
        self, contacts: ContactProcess, columns: Columns, meeting: Meeting, directions: np.ndarray
    ) -> tuple[np.ndarray, int]:
        """The directions whose transfers end before the contact does, and how many do not.

        The two sides are busy until then, and so meet nobody else: merging at once is the same as merging at the end.
        """
        if not self.rate or not len(directions):
            return directions, 0
        me, peer = meeting.me[directions], meeting.peer[directions]
        pairs = np.sort(np.column_stack([me, peer]), axis=1)
        _, pair, ways = np.unique(pairs, axis=0, return_inverse=True, return_counts=True)
        transfers = ways[pair.reshape(-1)] * (2 if self.there_and_back else 1)
        seconds = self.setup + transfers * self.size * 8e-6 / self.rate
        slots = np.maximum(1, np.ceil(seconds / contacts.slot)).astype(np.int64)
        fits = contacts.lasts(pairs, meeting.slot, slots)
        for device in (me, peer):
            columns["busy"][device[fits]] = meeting.slot + slots[fits]
        return directions[fits], int((~fits).sum())

    def account(self, columns: Columns, meeting: Meeting, directions: np.ndarray) -> int:
        """Count the transfers: the peer sends and I take (Eq. 6). Returns how many there were."""
        me, peer = meeting.me[directions], meeting.peer[directions]
        ways = [(peer, me), (me, peer)] if self.there_and_back else [(peer, me)]
        for sender, taker in ways:
            for device, left, done, weight in (
                (sender, "can_send", "sent", "bytes_sent"),
                (taker, "can_take", "taken", "bytes_taken"),
            ):
                np.subtract.at(columns[left], device, 1)
                np.add.at(columns[done], device, 1)
                np.add.at(columns[weight], device, self.size)
                np.add.at(columns["joules"], device, self.joules_per_megabyte * self.size / 1e6)
        columns["joules"][np.unique(np.concatenate([me, peer]))] += self.joules_per_link
        return len(ways) * len(directions)

    def give_back(self, columns: Columns, takers: np.ndarray) -> None:
        """A model refused at the gate costs its sender, but does not use up the budget of the device that asked."""
        np.add.at(columns["can_take"], takers, 1)
        np.subtract.at(columns["taken"], takers, 1)
