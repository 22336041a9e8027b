"""A small set of pairs to try things with, drawn from a seed: nothing is downloaded, nothing is kept."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from wayfare.core.protocols import Progress
from wayfare.core.seeds import rng_for
from wayfare.hashing.data.base import PairData
from wayfare.hashing.data.pairs import Paired
from wayfare.hashing.data.source import Stored, strings

KINDS = {  # fine classes under coarse ones, each with a colour and its words
    "plant": {"flower": ((200, 40, 120), "petal pink bloom"), "tree": ((40, 140, 50), "leaf green wood")},
    "water": {"sea": ((30, 70, 190), "wave blue deep"), "snow": ((230, 235, 240), "white cold frost")},
}
_SIDE, _TYPICAL, _CLUTTER, _ANY_WORDS = 8, 0.8, 0.05, 8


@dataclass(frozen=True)
class SamplePairs(PairData):
    """Patches of a class's colour in noise, with some of its words among other words; two levels of labels."""

    seed: int = 0

    def load(self, progress: Progress, size: tuple[int, int] = (224, 224)) -> Paired:
        return sample(self.seed)


def sample(seed: int = 0, pairs: int = 160, queries: int = 32) -> Paired:
    """Patches of a class's colour in noise, with some of its words among other words; two levels of labels."""
    rng = rng_for(seed, "sample pairs")
    fine = [(coarse, name, *about) for coarse, names in KINDS.items() for name, about in names.items()]
    names = (*KINDS, *(name for _, name, _, _ in fine))
    words = tuple(word for *_, own in fine for word in own.split()) + tuple(f"any{i}" for i in range(_ANY_WORDS))
    kind = rng.permutation(np.arange(pairs) % len(fine))
    labels = np.zeros((pairs, len(names)), bool)
    labels[np.arange(pairs), [names.index(fine[k][0]) for k in kind]] = True
    labels[np.arange(pairs), len(KINDS) + kind] = True
    colours = np.array([colour for _, _, colour, _ in fine])[kind][:, None, None]
    noisy = colours + rng.normal(0, 60, (pairs, _SIDE, _SIDE, 3))
    images = noisy.round().clip(0, 255).astype(np.uint8)
    own = np.array([[word in typical.split() for word in words] for *_, typical in fine])[kind]
    bags = (rng.random(own.shape) < np.where(own, _TYPICAL, _CLUTTER)).astype(np.float32)
    texts = [" ".join(word for word, present in zip(words, row, strict=True) if present) for row in bags]
    return Paired(
        name="sample",
        ids=strings([f"{number:03}" for number in range(pairs)]),
        texts=strings(texts),
        bags=csr_array(bags),
        words=words,
        labels=labels,
        names=names,
        levels=(len(KINDS), len(fine)),
        pictures=Stored(images, np.arange(pairs), (_SIDE, _SIDE)),
        features=(images.reshape(pairs, -1, 3).mean(1) / 127.5 - 1).astype(np.float32),
        query=np.arange(queries),
        train=np.arange(queries, pairs),
        retrieval=np.arange(queries, pairs),
    )
