"""A summary of a split for people: statistics, the first clients' label counts, and what the task adds."""

from __future__ import annotations

from typing import Any

from wayfare.core.protocols import Population, Task
from wayfare.partition.heterogeneity import counts, describe
from wayfare.partition.semantic import clusters_of
from wayfare.partition.semantic_stats import semantics_of

_DESCRIBED = 5000  # clients; more would take long and add little


def summarise_split(split: Population, task: Task) -> dict[str, Any]:
    """Ready for JSON: "provenance", "table", and what there is of "counts", "semantics" and the task's own."""
    if split.provenance.get("rule") == "joined":  # its samples are on the devices
        table = {key.removeprefix("size_"): value for key, value in describe(split).items()}
        return {"provenance": split.provenance, "table": table | {"clients": len(split)}}
    shown = split if len(split) <= _DESCRIBED else split.select(range(_DESCRIBED))
    table = describe(shown, task.labels, len(task.classes)) if task.labels is not None else describe(shown)
    renamed = {key.removeprefix("size_"): value for key, value in table.items() if key != "classes"}
    further = task.describe_split(shown)
    result: dict[str, Any] = {
        "provenance": split.provenance,
        "table": renamed | {"clients": len(split)} | further.pop("table", {}),
    }
    if len(split) > _DESCRIBED:
        result["note"] = f"statistics of the first {_DESCRIBED} of {len(split)} clients"
    result |= further
    if split.provenance.get("rule") == "semantic" and "categories" in task.sources:
        categories = task.source("categories")
        result["semantics"] = semantics_of(shown, categories, clusters_of(split, categories))
    if task.labels is not None:
        of_clients = counts(split, task.labels, len(task.classes))
        result |= {"classes": list(task.classes), "counts": of_clients.tolist()}
        result["ids"] = [split.id(i) for i in range(len(of_clients))]
    return result
