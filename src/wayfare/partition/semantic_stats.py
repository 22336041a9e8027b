"""How different clients are in the meaning of their samples, and what the clusters are about, as JSON values.

Heterogeneity is measured for the clusters, by which the samples were divided, and for the labels that a model sees,
such as predicates and objects: clients with one cluster each may still have much the same predicates.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from wayfare.core.errors import DataError
from wayfare.core.protocols import Population
from wayfare.partition.heterogeneity import counts, describe, statistics
from wayfare.partition.semantic import Clusters, clusters_of
from wayfare.partition.semantics import Categories, Level, as_categories

_STATISTICS = ("entropy", "total_variation", "largest_share")


def semantics_of(
    split: Population, dealt: Categories | np.ndarray, found: Clusters | None = None, top: int = 5, examples: int = 4
) -> dict[str, Any]:
    """Everything about a semantic split: "heterogeneity", a row by level; "clusters", a summary of each with its
    examples; "counts", samples by client and cluster, and the clients' "ids"; "unit", what a sample's cells count;
    "inertia" and "silhouettes" as K-means left them. `found` are the split's clusters, if they are known already."""
    data = as_categories(dealt)
    found = clusters_of(split, data) if found is None else found
    table = counts(split, found.labels, len(found.names))
    clusters = summaries(data, found, top, examples)
    for cluster in clusters:
        cluster["examples"] = [example_of(data, row) for row in cluster["examples"]]
    return {
        "heterogeneity": heterogeneity(split, found, data.levels),
        "clusters": clusters,
        "counts": table.tolist(),
        "ids": [split.id(i) for i in range(len(table))],
        "unit": data.unit,
        "inertia": found.inertia,
        "silhouettes": {str(number): score for number, score in found.silhouettes.items()},
    }


def example_of(data: Categories, row: int) -> dict[str, Any]:
    """One sample: its number and "id"; where there is more to see, what is said of it ("words"), the file of its
    "picture", and its graph ("drawing")."""
    if data.example is None:
        return {"sample": row, "id": str(row)}
    shown = data.example(row)
    record: dict[str, Any] = {"sample": row, "id": shown.id, "words": list(shown.words)}
    if shown.picture is not None:
        record["picture"] = str(shown.picture)
    if shown.drawing is not None:
        record["drawing"] = {
            "size": list(shown.drawing.size),
            "names": list(shown.drawing.names),
            "boxes": [list(box) for box in shown.drawing.boxes],
            "relations": [list(relation) for relation in shown.drawing.relations],
        }
    return record


def heterogeneity(split: Population, found: Clusters, levels: Mapping[str, Level]) -> dict[str, dict[str, Any]]:
    """By level, "cluster" first: number of classes, and of the clients on average the normalised entropy, the total
    variation to all clients together, and the largest share."""
    whole = describe(split, found.labels, found.names)
    rows = {"cluster": {key: whole[key] for key in ("classes", *_STATISTICS)}}
    return rows | {name: _of_counts(split, level) for name, level in levels.items()}


def summaries(dealt: Categories | np.ndarray, found: Clusters, top: int = 5, examples: int = 4) -> list[dict[str, Any]]:
    """For each cluster: its name, size and share of all samples; the mean sum of a sample's cells (its relations, say),
    without those below 0, which say what it has not; the cells with the largest mean ("top") and those most above the
    mean of all samples ("typical"); and the samples nearest to the centroid ("examples")."""
    data = as_categories(dealt)
    if len(found.labels) != len(data):
        raise DataError(f"clusters of {len(found.labels)} samples, but categories of {len(data)}")
    overall = data.values.mean(axis=0, dtype=np.float64)
    result = []
    for k, name in enumerate(found.names):
        rows = np.flatnonzero(found.labels == k)
        mine = data.values[rows].astype(np.float64)
        mean = mine.mean(axis=0) if len(rows) else np.zeros_like(overall)
        distance = ((mine - found.centroids[k]) ** 2).sum(axis=1)
        result.append(
            {
                "name": name,
                "size": len(rows),
                "share": len(rows) / len(data),
                "mean_sum": float(mine.clip(min=0).sum()) / max(len(rows), 1),
                "top": _largest(mean, data.names, top),
                "typical": _largest(mean - overall, data.names, top),
                "examples": rows[np.argsort(distance, kind="stable")[:examples]].tolist(),
            }
        )
    return result


def _largest(values: np.ndarray, names: tuple[str, ...], top: int) -> list[dict[str, Any]]:
    """The largest values above 0, with their names."""
    places = np.argsort(-values, kind="stable")[:top]
    return [{"cell": names[place], "value": float(values[place])} for place in places if values[place] > 0]


def _of_counts(split: Population, level: Level) -> dict[str, Any]:
    if len(split) and (last := int(split.pool().max(initial=-1))) >= len(level.counts):
        raise DataError(f"the split has sample {last}, there are counts of {len(level.counts)}: is it of other data?")
    table = np.array([level.counts[rows].sum(axis=0, dtype=np.float64) for rows in split])
    table = table.reshape(-1, len(level.names))
    table = table[table.sum(axis=1) > 0]
    row: dict[str, Any] = {"classes": len(level.names)} | dict.fromkeys(_STATISTICS)
    if len(table):
        row |= zip(_STATISTICS, statistics(table, table.sum(axis=0) / table.sum()).mean(axis=0).tolist())
    return row
