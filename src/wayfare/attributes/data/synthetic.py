"""A synthetic table of attributes, for use without CelebA. It describes no real people.

It has CelebA's names and one thing of CelebA's form: five kinds of faces, of unequal number, which differ in how often
they smile and in everything else, and a few attributes that go with a smile whatever the kind. So K-means finds kinds
that differ in the target, and the other attributes tell most, not all, of it. No number in it is measured on CelebA.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from wayfare.attributes.data import AttributeData
from wayfare.attributes.table import AttributeTable
from wayfare.core.errors import ConfigError
from wayfare.core.protocols import Progress
from wayfare.core.seeds import rng_for

NAMES = (
    "5_o_Clock_Shadow", "Arched_Eyebrows", "Attractive", "Bags_Under_Eyes", "Bald", "Bangs", "Big_Lips", "Big_Nose",
    "Black_Hair", "Blond_Hair", "Blurry", "Brown_Hair", "Bushy_Eyebrows", "Chubby", "Double_Chin", "Eyeglasses",
    "Goatee", "Gray_Hair", "Heavy_Makeup", "High_Cheekbones", "Male", "Mouth_Slightly_Open", "Mustache", "Narrow_Eyes",
    "No_Beard", "Oval_Face", "Pale_Skin", "Pointy_Nose", "Receding_Hairline", "Rosy_Cheeks", "Sideburns", "Smiling",
    "Straight_Hair", "Wavy_Hair", "Wearing_Earrings", "Wearing_Hat", "Wearing_Lipstick", "Wearing_Necklace",
    "Wearing_Necktie", "Young",
)  # fmt: skip
KINDS = (0.28, 0.23, 0.2, 0.16, 0.13)  # how much of the table each is
SMILES = (0.8, 0.2, 0.6, 0.3, 0.5)  # how many of each kind smile
# what a smile adds to the log-odds of an attribute, and what its absence takes away
PULLS = {"High_Cheekbones": 2.0, "Mouth_Slightly_Open": 1.7, "Narrow_Eyes": 1.3, "Rosy_Cheeks": 1.3, "Oval_Face": 1.1}
_PARTS = (0.8, 0.1, 0.1)  # to train, to validate, to test


@dataclass(frozen=True)
class SyntheticFaces(AttributeData):
    """The made-up table."""

    faces: int = 20_000
    seed: int = 0  # which faces: the same seed gives the same ones

    about: ClassVar[str] = "a synthetic table, not of real people"
    has_pictures: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.faces < 100:
            raise ConfigError(f"data.faces = {self.faces}: expected at least 100")

    def load(self, progress: Progress) -> AttributeTable:
        rows, rng = self.faces, rng_for(self.seed, "made-up faces")
        log_odds = rng.normal(-0.7, 0.5, len(NAMES)) + rng.normal(0.0, 1.0, (len(KINDS), len(NAMES)))
        pulls = np.array([PULLS.get(name, 0.0) for name in NAMES])
        kind = rng.choice(len(KINDS), rows, p=KINDS)
        smiles = rng.random(rows) < np.array(SMILES)[kind]
        log_odds_of_face = log_odds[kind] + np.where(smiles, 1, -1)[:, None] * pulls
        values = rng.random((rows, len(NAMES))) < 1 / (1 + np.exp(-log_odds_of_face))
        values[:, NAMES.index("Smiling")] = smiles
        parts = rng.choice(len(_PARTS), rows, p=_PARTS).astype(np.uint8)
        files = np.array([f"face {number}" for number in range(1, rows + 1)], object)
        return AttributeTable(NAMES, files, values, parts)
