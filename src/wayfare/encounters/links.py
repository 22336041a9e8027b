"""What an exchange costs: time, which the contact must last; transmissions and receptions, bytes and energy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wayfare.core.exchange import Columns, Meeting
from wayfare.encounters.contacts import ContactProcess

PARTIAL = "partial"  # a column: me, peer, checksum of the model on its way, bytes that have come


@dataclass(frozen=True)
class Transfers:
    """Exchanges of a slot that come to their end, and how many do not."""

    directions: np.ndarray
    moved: np.ndarray  # bytes of each that travel now; less than the model's if a part came earlier
    cut: int


@dataclass(frozen=True)
class RadioLink:
    """How models are sent between devices. With delegation, a device sends its model first and gets it back."""

    size: int  # bytes of what a device sends
    rate: float  # Mbit/s; 0: every exchange fits in a slot
    setup: float  # seconds until the link is up
    joules_per_megabyte: float  # for each side
    joules_per_link: float
    there_and_back: bool
    resumes: bool = False  # a transfer that the end of a contact cuts is continued when the two meet again
    byte_limit: float = 0.0  # bytes that a device sends and takes in all; 0: no limit

    def affordable(self, columns: Columns, meeting: Meeting, asks: np.ndarray) -> np.ndarray:
        """There and back in both directions costs each side two of each: with less, only the first asks."""
        asks = self._within_bytes(columns, meeting, asks)
        if not self.there_and_back:
            return asks
        half = len(asks) // 2
        least = np.minimum(columns["can_send"], columns["can_take"])
        poor = np.minimum(least[meeting.me[:half]], least[meeting.peer[:half]]) < 2
        return np.concatenate([asks[:half], asks[half:] & ~(asks[:half] & poor)])

    def _within_bytes(self, columns: Columns, meeting: Meeting, asks: np.ndarray) -> np.ndarray:
        """What both sides have bytes left for; if only for one of two directions, the first."""
        if not self.byte_limit:
            return asks
        used, half = columns["bytes_sent"] + columns["bytes_taken"], len(asks) // 2
        size = self.size * (2 if self.there_and_back else 1)
        left = self.byte_limit - np.maximum(used[meeting.me], used[meeting.peer])
        asks = asks & (left >= size)
        return np.concatenate([asks[:half], asks[half:] & ~(asks[:half] & (left[half:] < 2 * size))])

    def fitting(
        self, contacts: ContactProcess, columns: Columns, meeting: Meeting, directions: np.ndarray
    ) -> Transfers:
        """The directions whose transfers end before the contact does.

        The two sides are busy until then, and so meet nobody else: merging at once is the same as merging at the end.
        """
        size = self.size * (2 if self.there_and_back else 1)
        if not self.rate or not len(directions):
            return Transfers(directions, np.full(len(directions), size), 0)
        me, peer = meeting.me[directions], meeting.peer[directions]
        if self.resumes:
            return self._resumed(contacts, columns, meeting, directions)
        pairs = np.sort(np.column_stack([me, peer]), axis=1)
        _, pair, ways = np.unique(pairs, axis=0, return_inverse=True, return_counts=True)
        seconds = self.setup + ways[pair.reshape(-1)] * size * 8e-6 / self.rate
        slots = np.maximum(1, np.ceil(seconds / contacts.slot)).astype(np.int64)
        fits = contacts.lasts(pairs, meeting.slot, slots)
        for device in (me, peer):
            columns["busy"][device[fits]] = meeting.slot + slots[fits]
        return Transfers(directions[fits], np.full(int(fits.sum()), size), int((~fits).sum()))

    def _resumed(
        self, contacts: ContactProcess, columns: Columns, meeting: Meeting, directions: np.ndarray
    ) -> Transfers:
        """One direction of a pair after the other, until the contact ends; what has come by then is kept.

        It is of use as long as the peer's model stays the same.
        """
        me, peer, models = meeting.me[directions], meeting.peer[directions], columns["check"][meeting.peer[directions]]
        partial = columns[PARTIAL]
        came = {(a, b, model): count for a, b, model, count in partial.tolist()}
        keys = list(zip(me.tolist(), peer.tolist(), models.tolist()))
        left = np.array([self.size - came.get(key, 0) for key in keys])
        pairs = np.sort(np.column_stack([me, peer]), axis=1)
        _, pair = np.unique(pairs, axis=0, return_inverse=True)
        order = np.lexsort((np.arange(len(pair)), pair.reshape(-1)))
        end, ends = dict[int, float](), np.empty(len(directions))
        for place in order:
            start = end.get(int(pair.reshape(-1)[place]), self.setup)
            ends[place] = end[int(pair.reshape(-1)[place])] = start + left[place] * 8e-6 / self.rate
        last = np.array([end[int(number)] for number in pair.reshape(-1)])
        slots = contacts.remaining(
            pairs, meeting.slot, np.maximum(1, np.ceil(last / contacts.slot - 1e-9)).astype(np.int64)
        )
        seconds = slots * contacts.slot
        missing = np.maximum(0, np.ceil((ends - seconds) * self.rate / 8e-6 - 1e-3)).astype(np.int64)
        moved = np.maximum(0, left - missing)
        done = moved == left
        for device in (me, peer):
            np.maximum.at(columns["busy"], device, meeting.slot + slots)
        self._move(columns, peer[~done], me[~done], moved[~done])
        gone = {key[:2] for key in keys}
        kept = [row for row in partial.tolist() if (row[0], row[1]) not in gone]
        kept += [
            [*key, self.size - n + m]
            for key, n, m, whole in zip(keys, left, moved, done)
            if not whole and self.size - n + m
        ]
        columns[PARTIAL] = np.array(kept, np.int64).reshape(-1, 4)
        return Transfers(directions[done], moved[done], int((~done).sum()))

    def account(self, columns: Columns, meeting: Meeting, moved: np.ndarray) -> int:
        """Count the transfers: the peer sends and I take (Eq. 6). Returns how many bytes travelled."""
        me, peer = meeting.me, meeting.peer
        ways = [(peer, me), (me, peer)] if self.there_and_back else [(peer, me)]
        for sender, taker in ways:
            for device, left, done in ((sender, "can_send", "sent"), (taker, "can_take", "taken")):
                np.subtract.at(columns[left], device, 1)
                np.add.at(columns[done], device, 1)
            self._move(columns, sender, taker, moved // len(ways))
        columns["joules"][np.unique(np.concatenate([me, peer]))] += self.joules_per_link
        return int(moved.sum())

    def _move(self, columns: Columns, sender: np.ndarray, taker: np.ndarray, moved: np.ndarray) -> None:
        for device, weight in ((sender, "bytes_sent"), (taker, "bytes_taken")):
            np.add.at(columns[weight], device, moved)
            np.add.at(columns["joules"], device, self.joules_per_megabyte * moved / 1e6)

    def give_back(self, columns: Columns, takers: np.ndarray) -> None:
        """A model refused at the gate costs its sender, but does not use up the budget of the device that asked."""
        np.add.at(columns["can_take"], takers, 1)
        np.subtract.at(columns["taken"], takers, 1)
