"""From which score on an item is close to a query: as near as right results usually are.

Queries are the texts of the run's queries, and the names of its labels. Each is compared with items that are searched
when the run is judged. Of those whose first result is right, since it has a label of the query, 95 % have a score above
the level; a query without any item above it is told that nothing is close. Where too few queries are right to say
anything, everything is close.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import nn
from torch.nn.functional import normalize

from wayfare.hashing.task import Hashing

_QUERIES, _ITEMS = 300, 1000
_LEAST, _SHARE = 20, 0.05
EVERYTHING = -1.0


def close_scores(task: Hashing, net: nn.Module) -> dict[str, float]:
    """The level for queries of words that look for photos, and for texts."""
    pairs = task.pairs
    queries, items = _some(pairs.query, _QUERIES), _some(pairs.retrieval, _ITEMS)
    if not len(queries) or not len(items):
        return {"photos": EVERYTHING, "texts": EVERYTHING}
    asked, wanted = _asked(task, net, queries)
    labels = task.loaded.labels(items)[-1]
    return {
        view: level(asked, task.features(net, side, items), wanted, labels)
        for view, side in (("photos", "image"), ("texts", "text"))
    }


def level(asked: torch.Tensor, items: torch.Tensor, wanted: np.ndarray, labels: np.ndarray) -> float:
    """Of outputs (q, bits) and (n, bits), and labels, bool (q, C) and (n, C)."""
    best, place = (normalize(asked) @ normalize(items).T).max(1)
    right = (wanted & labels[place.cpu().numpy()]).any(1)
    if int(right.sum()) < _LEAST:
        return EVERYTHING
    return float(np.quantile(best.cpu().numpy()[right].astype(np.float64), _SHARE))


def _asked(task: Hashing, net: nn.Module, rows: np.ndarray) -> tuple[torch.Tensor, np.ndarray]:
    """Outputs for the texts of pairs and for the names of labels, and which labels each of them asks for."""
    outputs, wanted = [task.features(net, "text", rows)], [task.loaded.labels(rows)[-1]]
    single = np.eye(len(task.classes), dtype=bool)
    names = [task.loaded.label_text(row) for row in single]
    read = [at for at, name in enumerate(names) if name]
    if read:
        device = outputs[0].device
        with torch.no_grad():
            raw = net.encode("text", task.loaded.of_texts([names[at] for at in read]).to(device))  # type: ignore[operator]
            outputs.append(net.enhance("text", raw))  # type: ignore[operator]
        wanted.append(single[read])
    return torch.cat(outputs), np.concatenate(wanted)


def _some(rows: np.ndarray, count: int) -> np.ndarray:
    return rows[:: max(1, len(rows) // count)]
