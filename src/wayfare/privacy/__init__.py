"""What a federation of strangers needs, around any strategy: differential privacy and robust aggregation.

An aggregation stands between the gate and a strategy's merge (`MergeRule` of `core/protocols/strategy.py`). It takes
the changes that the devices send, makes one change of them, and gives the strategy that one in place of each. So it
goes with every strategy that uses nothing of the replies but means or sums of their sections (`Strategy.linear`).

    changes.py       the changes of a round, as vectors, and back
    client_level.py  client-level DP-FedAvg (McMahan et al., 2018): sampling, clipping, noise; adaptive clipping
    sample_level.py  sample-level DP-SGD (Abadi et al., 2016) in each client
    networks.py      which networks can be trained with differential privacy
    secrets.py       the secret of a run: who is sampled, and the noise
    ledger.py        what was released, written down before it is
    accounting.py    epsilon of a ledger, the noise for an epsilon
    robust.py        median, trimmed mean, geometric median, Krum, centred clipping; mixing and bucketing
    attacks.py       devices that lie, to try the rules against

The path of a round: `topologies/server.py` asks who is chosen (`choose`), `core/gate.py` asks the devices and gives the
admitted replies to `merge`; there they become changes, one change, and a reply that the strategy merges.
"""
