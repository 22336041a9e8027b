"""What everything else stands on: what travels, the training loop, the contracts, the gate, the run folder.

bundle.py      named sections of tensors and a few values
device.py      a device as a strategy sees it, and the one training loop; tuning.py is what it does for speed only
protocols/     the contracts between the parts, with every member that anyone uses
gate.py        every message to a device goes through it, and every reply
federation.py  what a topology works with, and what it yields
exchange.py    the contracts of devices that meet
store.py       the run folder; disk.py, locks.py, memory.py, rows.py and manifest.py are below it
seeds.py       random numbers that depend on what they are for
errors.py      everything that is raised on purpose
"""
