"""What attributes of a picture mean, as numbers, for the partition `semantic`."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

import numpy as np

from wayfare.attributes.table import AttributeTable
from wayfare.core.errors import ConfigError
from wayfare.partition.semantics import Categories, Example, Level


def attribute_categories(annotations: AttributeTable, drop: Collection[str] = ()) -> Categories:
    """1 for an attribute that a picture has, -1 for one it has not. Drop the one that is to be learnt: with it among
    the others, clusters are nearly pure in it."""
    for name in drop:
        annotations.column(name)  # raises where there is none of this name
    kept = [place for place, name in enumerate(annotations.names) if name not in drop]
    if not kept:
        raise ConfigError("categories of attributes: all of them are dropped; keep at least one")
    values = annotations.values[:, kept]
    names = tuple(annotations.names[place] for place in kept)
    whole = Level(annotations.values.astype(np.float32), annotations.names)
    signs = np.where(values, np.float32(1), np.float32(-1))
    show = partial(_portrait, annotations)
    return Categories(signs, names, axes=(names,), levels={"attribute": whole}, unit="attributes", example=show)


def _portrait(attributes: AttributeTable, row: int) -> Example:
    words = tuple(name for name, has in zip(attributes.names, attributes.values[row]) if has)
    file = None if attributes.folder is None else attributes.folder / str(attributes.files[row])
    return Example(str(attributes.files[row]), words, file if file is not None and file.is_file() else None)
