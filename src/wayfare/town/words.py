"""The town's vocabulary: kinds of things and of surfaces, predicates, and their super-classes.

Where PSG has a word for a thing its word is used, so that code written for PSG's names finds them here.
"""

from __future__ import annotations

# ---- What can be in a picture, by super-class

THINGS: dict[str, tuple[str, ...]] = {
    "Person": ("person",),
    "Vehicles": ("bicycle", "car", "motorcycle", "bus", "truck", "boat"),
    "Road Objects": ("traffic light", "fire hydrant", "stop sign", "banner", "street lamp"),
    "Furniture": ("bench", "chair", "potted plant", "dining table"),
    "Animals": ("bird", "cat", "dog", "horse", "duck"),
    "Clothing and Accessories": ("backpack", "umbrella", "handbag", "suitcase"),
    "Outdoor Activities": ("sports ball", "kite", "skateboard"),
    "Food": ("fruit", "cake"),
    "Sights": ("temple", "gate", "statue", "fountain", "market", "tower", "pavilion", "bridge", "clock", "windmill"),
}
STUFF: dict[str, tuple[str, ...]] = {
    "Structures": ("building", "wall", "fence", "road", "pavement", "square"),
    "Nature": ("sky", "tree", "grass", "water", "flower", "hill"),
}
SIGHTS = THINGS["Sights"]  # ten classes: what the objects task recognises

# ---- How they relate, by super-class; what is frequent and what is rare is decided by the town, not here
# Found from the picture: over, in front of, beside, on, in, attached to, growing on, enclosing. All others are what a
# thing does (Thing.doing); where it does that without another thing (id -1) the object is the surface under it, or what
# it touches: a building for "entering", a building, wall, fence or tree for "leaning on", the road for "crossing".

PREDICATES: dict[str, tuple[str, ...]] = {
    "Positional Relations": ("over", "in front of", "beside", "on", "in", "attached to"),
    "Common Object-Object Relations": ("hanging from", "on back of", "leaning on", "growing on"),
    "Common Actions": (
        "standing on", "walking on", "sitting on", "running on", "lying on", "holding", "carrying", "looking at",
        "flying over", "swimming in", "pulling", "pushing", "feeding", "chasing", "guiding", "playing with",
    ),
    "Human Actions": ("talking to", "eating", "buying from", "photographing"),
    "Actions in Traffic Scene": ("driving on", "parked on", "riding", "crossing"),
    "Actions in Sports Scene": ("kicking", "flying"),
    "Interaction between Background": ("entering", "enclosing"),
}  # fmt: skip

THING_CLASSES = tuple(kind for kinds in THINGS.values() for kind in kinds)
STUFF_CLASSES = tuple(kind for kinds in STUFF.values() for kind in kinds)
CLASSES = THING_CLASSES + STUFF_CLASSES  # the order of category ids
PREDICATE_CLASSES = tuple(name for names in PREDICATES.values() for name in names)

# ---- Super-classes, as the scene-graph benchmark groups PSG's words (its file word_categorized.json)

OBJECT_GROUPS = THINGS | STUFF
PREDICATE_GROUPS = PREDICATES
THING_GROUPS = tuple(THINGS)
_TWO_LEVELS = {
    kind: (group, THING_CLASSES.index(kind)) for group, kinds in enumerate(THINGS.values()) for kind in kinds
}


def two_level(kind: str) -> tuple[int, int]:
    """A thing's super-class, as a place in THING_GROUPS, and its class, as a place in THING_CLASSES.

    Surfaces have none: a KeyError.
    """
    return _TWO_LEVELS[kind]


def categorised() -> dict[str, dict[str, list[str]]]:
    """The content of a `word_categorized.json` for the town's words."""
    return {
        "categories": {group: list(kinds) for group, kinds in OBJECT_GROUPS.items()},
        "relations": {group: list(names) for group, names in PREDICATE_GROUPS.items()},
    }
