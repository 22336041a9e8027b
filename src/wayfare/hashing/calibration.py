"""What outputs have in common, and from which score on an item is close to a query.

A score is the cosine of a query's and an item's output, each scaled to length 1 and less the mean of its kind: single
words, texts (queries of several words are like them), or pictures. What all queries have in common says nothing about
what is looked for. With a bag of words it is most of a short query's output: on 1,906 emoji one picture was among the
first ten of 81 % of 1,185 words. Precision at 10 by pictures alone, right being that the word is in the picture's text:
0.05 without the means and 0.32 with them; over the 190 pictures that nobody learnt from, for 90 words, 0.25 and 0.44.
(Means of outputs that keep their lengths give 0.33 and 0.45, but an index does not keep lengths.)

What several words have in common is not what single ones have. Queries of two words that at least three of those 190
pictures have, less the mean of words and less that of texts: 0.61 and 0.66 with a bag of words, 0.73 and 0.78 with
MiniLM (17 queries); single words: 0.50 and 0.47, 0.49 and 0.46 (90 queries). On fashion photos to choose by, DINOv2 and
MiniLM, 215 queries of a colour, a kind and a wearer, or two of these: 0.64 and 0.67.

An item is close if it is as near as right results usually are. Queries are the texts of the run's queries, and the
names of its labels. Each is compared with items that are searched when the run is judged. Of those whose first result
is right, since it has a label of the query, 95 % have a score above the level; a query without any item above it is
told that nothing is close. Where too few queries are right to say anything, everything is close.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import nn
from torch.nn.functional import normalize

from wayfare.hashing.data.words import tokens
from wayfare.hashing.task import Hashing

_QUERIES, _ITEMS, _WORDS = 300, 1000, 500
_LEAST, _SHARE = 20, 0.05
EVERYTHING = -1.0


def centres(task: Hashing, net: nn.Module) -> dict[str, torch.Tensor]:
    """Means of outputs of length 1: of "words" asked for one by one, and of the "text" and "image" of pairs."""
    pairs = task.pairs
    rows = _some(pairs.train, _ITEMS)
    found = {side: normalize(task.features(net, side, rows)).mean(0).cpu() for side in ("text", "image")}
    words = [pairs.words[place] for place in _some(np.arange(len(pairs.words)), _WORDS)]
    found["words"] = normalize(_of_texts(task, net, words)).mean(0).cpu() if words else found["text"]
    return found


def close_scores(task: Hashing, net: nn.Module, middle: Mapping[str, torch.Tensor]) -> dict[str, float]:
    """The level for queries of words that look for photos, and for texts; `middle` is what `centres` gives."""
    pairs = task.pairs
    queries, items = _some(pairs.query, _QUERIES), _some(pairs.retrieval, _ITEMS)
    if not len(queries) or not len(items):
        return {"photos": EVERYTHING, "texts": EVERYTHING}
    asked, wanted, texts = _asked(task, net, queries)
    asked = normalize(asked) - torch.stack([middle[kind_of(text)] for text in texts]).to(asked)
    labels = task.loaded.labels(items)[-1]
    return {
        view: level(asked, normalize(task.features(net, side, items)) - middle[side].to(asked), wanted, labels)
        for view, side in (("photos", "image"), ("texts", "text"))
    }


def kind_of(text: str) -> str:
    """Whose mean is taken from a query of words."""
    return "text" if len(tokens(text)) > 1 else "words"


def level(asked: torch.Tensor, items: torch.Tensor, wanted: np.ndarray, labels: np.ndarray) -> float:
    """Of outputs (q, bits) and (n, bits), and labels, bool (q, C) and (n, C)."""
    best, place = (normalize(asked) @ normalize(items).T).max(1)
    right = (wanted & labels[place.cpu().numpy()]).any(1)
    if int(right.sum()) < _LEAST:
        return EVERYTHING
    return float(np.quantile(best.cpu().numpy()[right].astype(np.float64), _SHARE))


def _asked(task: Hashing, net: nn.Module, rows: np.ndarray) -> tuple[torch.Tensor, np.ndarray, list[str]]:
    """Outputs for the texts of pairs and for the names of labels, which labels each of them asks for, and its words."""
    texts = [str(text) for text in task.pairs.texts[rows]]
    outputs, wanted = [task.features(net, "text", rows)], [task.loaded.labels(rows)[-1]]
    single = np.eye(len(task.classes), dtype=bool)
    names = [task.loaded.label_text(row) for row in single]
    read = [at for at, name in enumerate(names) if name]
    if read:
        outputs.append(_of_texts(task, net, [names[at] for at in read]))
        wanted.append(single[read])
        texts += [names[at] for at in read]
    return torch.cat(outputs), np.concatenate(wanted), texts


@torch.no_grad()
def _of_texts(task: Hashing, net: nn.Module, texts: Sequence[str]) -> torch.Tensor:
    device = next(net.parameters()).device
    raw = net.encode("text", task.loaded.of_texts(texts).to(device))  # type: ignore[operator]
    found: torch.Tensor = net.enhance("text", raw)  # type: ignore[operator]
    return found


def _some(rows: np.ndarray, count: int) -> np.ndarray:
    return rows[:: max(1, len(rows) // count)]
