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
