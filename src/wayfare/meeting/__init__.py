"""Real devices that meet, without a server: what `wayfare meet` runs.

identity.py    a device's key and certificate, and the keys of the others, pinned when they were first seen
invitation.py  a group of devices that know each other by invitation: one file for each
published.py   the lowest, median and highest accuracy of all, which no device can know alone
wire.py        messages over one connection: framed, of known fields, with a size cap and one deadline
diary.py       what must survive kill -9: the model, the budget, and the ledger of what was sent and taken
session.py     one meeting: hello, offer, want, weights, acknowledgement
peer.py        the program: finds others, meets one at a time, merges what it took
discovery.py   who is near: addresses that are given, and mDNS on the local network; other links go here
program.py     a peer from a recipe and a folder of photographs
peer_page.py   what a device has done, for its owner

What a device decides and how it merges is in `encounters/alone.py`, by the policies of the simulation.
"""
