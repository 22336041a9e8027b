"""The contracts between the parts. `core` knows no task, strategy, topology or engine by name; they know only this.

task.py        `Task`, its `Data` and `Model`, and what passes between them: `Batch`, `Output`, `Client`
strategy.py    `Strategy`: both halves of an algorithm; `MergeRule`: what stands between the gate and its merge
topology.py    `Topology`: who talks to whom
engine.py      `Engine`: the one door between those who ask and the devices; `Compression`: what travels through it
population.py  `Population`: the clients and their samples; `Partition` makes one
settings.py    `Training`, `Evaluation`, `Policy`
"""

from wayfare.core.protocols.engine import AS_IS, Compression, Engine, Failure, Prefetch
from wayfare.core.protocols.population import Partition, Population
from wayfare.core.protocols.settings import Evaluation, Policy, Training
from wayfare.core.protocols.strategy import MergeContext, MergeRule, Strategy
from wayfare.core.protocols.task import Batch, Client, Data, Extra, Model, Output, Progress, SampleFiles, Task, silent
from wayfare.core.protocols.topology import Topology

__all__ = [
    "AS_IS",
    "Batch",
    "Client",
    "Compression",
    "Data",
    "Engine",
    "Evaluation",
    "Extra",
    "Failure",
    "MergeContext",
    "MergeRule",
    "Model",
    "Output",
    "Partition",
    "Policy",
    "Population",
    "Prefetch",
    "Progress",
    "SampleFiles",
    "Strategy",
    "Task",
    "Topology",
    "Training",
    "silent",
]
