"""Which pairs of the common test a client with a model of its own is judged by, as FedCAFE's paper has it.

Queries and what is searched are dealt to clients by the heterogeneity of their training pairs: of each label a client
gets the share of the test that it has of the pool. Each client draws for itself, so that a device needs to know of no
other one; a pair may be dealt twice, or to nobody.
"""

from __future__ import annotations

import numpy as np

from wayfare.core.protocols import Client


def samples_of(client: Client) -> np.ndarray:
    """All of a client's samples."""
    return np.concatenate([client.train, client.holdout])


def dealt(labels: np.ndarray, own: np.ndarray, pool: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Which rows of `labels` a client gets, bool (N,); `own` are the labels of its pairs, `pool` those of all.

    A pair with several labels goes by the mean of their shares.
    """
    shares = own.sum(0) / np.maximum(pool.sum(0), 1)
    chances = labels.astype(np.float64) @ shares / np.maximum(labels.sum(1), 1)
    found: np.ndarray = rng.random(len(labels)) < chances
    return found
