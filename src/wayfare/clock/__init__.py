"""Devices that are not alike: how fast each one computes and sends, and when it can be reached. `[clock]` in a recipe.

1. `core/clock.py`: the seconds and joules of one trip of a message, from what is said here
2. `drawn.py`: speeds, links and spans drawn from distributions, by the run's seed
3. `trace.py`: read from a table
4. `walkers.py`: from the walks of a town: a phone can be reached while its owner is indoors
5. `topologies/server.py` waits for the slowest, `topologies/buffered.py` and `topologies/asynchronous.py` do not
"""
