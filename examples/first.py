"""A federation of ten clients, in a few lines."""

import sys

from wayfare import Experiment, Training, run
from wayfare.partition.dirichlet import Dirichlet
from wayfare.strategies.fedprox import FedProx

experiment = Experiment(
    partition=Dirichlet(clients=10, alpha=0.3),
    strategy=FedProx(mu=0.1),
    training=Training(epochs=2, batch_size=16, lr=0.05),
    rounds=5,
)
result = run(experiment, sys.argv[1] if len(sys.argv) > 1 else "runs/first")
print(result.metrics)
model = result.load()  # .predict, .embed, .evaluate, .network, .export; places: .locate, hashing: .search
