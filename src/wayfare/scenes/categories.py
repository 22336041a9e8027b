"""The meaning of a scene graph as numbers: counts of its relations, for the partition `semantic`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Literal, get_args

import numpy as np

from wayfare.core.errors import ConfigError, unknown
from wayfare.partition.semantics import Categories, Drawing, Example, count, level_of
from wayfare.scenes.data.scene_graphs import SceneGraphs
from wayfare.scenes.data.super_classes import SuperClasses

Part = Literal["subject", "object", "predicate"]
_SPOKEN = ("subject", "predicate", "object")  # the order in which a triplet is read


def scene_categories(
    annotations: SceneGraphs,
    groups: SuperClasses | None = None,
    axes: Sequence[Part] = ("subject", "object", "predicate"),
) -> Categories:
    """Counts of relations (repeated ones count again), by the groups of their parts, or by their own classes."""
    if strange := set(axes) - set(get_args(Part)):
        raise unknown("axis", min(strange), get_args(Part), "categories of scene graphs")
    if not axes or len(set(axes)) != len(axes):
        raise ConfigError(f"categories of scene graphs: axes must be different ones of {', '.join(get_args(Part))}")
    image, relations = annotations.relation_images, annotations.relations
    ends = annotations.labels[relations[:, :2] + annotations.object_offsets[image][:, None]]
    places: dict[str, np.ndarray] = {"subject": ends[:, 0], "object": ends[:, 1], "predicate": relations[:, 2]}
    names = {"subject": annotations.classes, "object": annotations.classes, "predicate": annotations.predicates}
    if groups is not None:
        for part in ("subject", "object"):
            places[part], names[part] = groups.object_of[places[part]], groups.objects
        places["predicate"], names["predicate"] = groups.predicate_of[places["predicate"]], groups.predicates
    spoken = [axes.index(part) for part in _SPOKEN if part in axes]
    levels = {
        "predicate": level_of(len(annotations), image, relations[:, 2], annotations.predicates),
        "object": level_of(len(annotations), annotations.object_images, annotations.labels, annotations.classes),
    }
    cells, chosen = np.stack([places[part] for part in axes], -1), [names[part] for part in axes]
    found = count(len(annotations), image, cells, chosen, spoken=spoken, levels=levels)
    return replace(found, unit="relations", example=partial(_scene, annotations))


def _scene(graphs: SceneGraphs, row: int) -> Example:
    graph = graphs[row]
    # PSG's sky-other-merged and grass-merged are sky and grass to a reader
    names = tuple(graphs.classes[k].removesuffix("-merged").removesuffix("-other") for k in graph.labels)
    relations = tuple(dict.fromkeys((s, graphs.predicates[p], o) for s, o, p in graph.relations.tolist()))
    words = tuple(dict.fromkeys(f"{names[s]} {predicate} {names[o]}" for s, predicate, o in relations))
    height, width = graph.size if all(graph.size) else graph.boxes[:, 3:1:-1].max(axis=0, initial=1).tolist()
    boxes = tuple(map(tuple, graph.boxes.tolist()))
    return Example(
        graph.image_id, words, graphs.picture(row), Drawing((float(height), float(width)), names, boxes, relations)
    )
