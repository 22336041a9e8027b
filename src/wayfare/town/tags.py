"""Tags as people write them under their photographs: incomplete, in several words for one thing, and with noise.

Each walker is a person with habits: how much it writes, and the words it puts
under everything. What is written about one picture is drawn from what is to be seen in it, the more surely the
larger and the more interesting it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import accumulate

from wayfare.core.seeds import rng_for
from wayfare.town.items import SeenItem
from wayfare.town.model import Shot
from wayfare.town.words import CLASSES, SIGHTS

# the words for a kind, from the most to the least used: synonyms, plurals, other languages, misspellings
WORDS: dict[str, tuple[str, ...]] = {
    "person": ("people", "man", "woman", "person", "portrait", "girl", "pedestrian", "gente", "peple"),
    "bicycle": ("bike", "bicycle", "cycling", "fahrrad", "bicicle"),
    "car": ("car", "cars", "auto", "traffic", "automobile", "parking"),
    "motorcycle": ("motorbike", "motorcycle", "moto", "scooter"),
    "bus": ("bus", "transit", "publictransport", "autobus"),
    "truck": ("truck", "lorry", "delivery", "camion"),
    "boat": ("boat", "rowing", "boats", "barca"),
    "traffic light": ("trafficlight", "lights", "signal", "ampel"),
    "fire hydrant": ("hydrant", "firehydrant", "red"),
    "stop sign": ("stop", "sign", "stopsign", "signs"),
    "banner": ("banner", "flag", "sign", "text", "poster"),
    "street lamp": ("lamp", "streetlamp", "lamppost", "lantern"),
    "bench": ("bench", "seat", "bank", "benches"),
    "chair": ("chair", "cafe", "chairs", "terrace"),
    "potted plant": ("plant", "pot", "plants", "green"),
    "dining table": ("table", "cafe", "restaurant", "lunch"),
    "bird": ("bird", "birds", "pigeon", "birdwatching", "vogel"),
    "cat": ("cat", "kitty", "cats", "chat", "catz"),
    "dog": ("dog", "dogs", "puppy", "hund", "doggy", "perro"),
    "horse": ("horse", "horses", "riding", "pony", "cheval"),
    "duck": ("duck", "ducks", "mallard", "bird"),
    "backpack": ("backpack", "rucksack", "bag", "traveller"),
    "umbrella": ("umbrella", "umbrellas", "parasol", "rain"),
    "handbag": ("handbag", "fashion", "bag", "style"),
    "suitcase": ("suitcase", "luggage", "travel", "trolley"),
    "sports ball": ("ball", "football", "soccer", "game"),
    "kite": ("kite", "wind", "kites", "flying"),
    "skateboard": ("skate", "skateboard", "skating", "sk8"),
    "fruit": ("fruit", "apples", "fresh", "food"),
    "cake": ("cake", "dessert", "food", "sweet"),
    "temple": ("temple", "religion", "columns", "tempel", "sightseeing"),
    "gate": ("gate", "arch", "oldtown", "tor", "gateway"),
    "statue": ("statue", "sculpture", "monument", "bronze", "satue"),
    "fountain": ("fountain", "water", "brunnen", "splash", "fontain"),
    "market": ("market", "stalls", "shopping", "markt", "bazaar"),
    "tower": ("tower", "skyline", "turm", "tall", "towers"),
    "pavilion": ("pavilion", "gazebo", "garden", "pavillon"),
    "bridge": ("bridge", "bridges", "river", "brücke", "puente"),
    "clock": ("clock", "time", "clocktower", "uhr"),
    "windmill": ("windmill", "mill", "molen", "windmills"),
    "building": ("building", "architecture", "buildings", "facade", "house", "windows", "houses", "architektur"),
    "wall": ("wall", "bricks", "stone", "mur"),
    "fence": ("fence", "railing", "iron", "zaun"),
    "road": ("street", "road", "streets", "asphalt", "strasse"),
    "pavement": ("sidewalk", "pavement", "walk", "footpath"),
    "square": ("square", "plaza", "piazza", "platz"),
    "sky": ("sky", "blue", "bluesky", "himmel", "cielo"),
    "tree": ("tree", "trees", "green", "leaves", "nature", "baum", "arbol"),
    "grass": ("grass", "park", "lawn", "green", "garden"),
    "water": ("water", "river", "reflection", "pond", "lake", "agua"),
    "flower": ("flowers", "flower", "bloom", "blossom", "flor", "flowres"),
    "hill": ("hill", "hills", "landscape", "horizon", "view"),
}
_WEATHER = {
    "clear": ("sunny", "sun", "sunshine", "bluesky", "goodweather"),
    "cloudy": ("clouds", "cloudy", "cloud", "grey", "overcast", "wolken"),
    "rain": ("rain", "rainy", "wet", "umbrella", "puddle", "regen"),
    "fog": ("fog", "mist", "foggy", "misty", "haze", "nebel"),
    "snow": ("snow", "winter", "cold", "white", "schnee", "snowy"),
}
_WEATHER_NOTED = {"clear": 0.25, "cloudy": 0.4, "rain": 0.65, "fog": 0.75, "snow": 0.75}
_SEASONS = {
    "spring": ("spring", "april", "springtime", "bloom"),
    "summer": ("summer", "july", "hot", "sommer"),
    "autumn": ("autumn", "fall", "october", "leaves"),
    "winter": ("winter", "january", "cold", "hiver"),
}
_NIGHT = ("night", "dark", "nightshot", "lights", "bynight", "noche", "longexposure", "nite")
_EARLY = ("morning", "sunrise", "early", "dawn")
_LATE = ("sunset", "evening", "dusk", "goldenhour")
_ROLES = {
    "tourist": ("travel", "vacation", "holiday", "trip", "sightseeing", "tourist", "wanderlust", "roadtrip"),
    "resident": ("home", "neighbourhood", "walk", "myhood", "everyday", "hometown", "dogwalk"),
    "vehicle": ("dashcam", "driving", "drive", "onboard"),
    "signage": ("webcam", "timelapse", "fixed", "live"),
}
_GEAR = ("35mm", "wideangle", "f8", "handheld", "raw", "phonecam", "zoom", "film", "50mm", "hdr")
_NOISE = (
    "2024", "me", "urban", "city", "photo", "explore", "color", "light", "art", "life", "day", "friends", "love",
    "beautiful", "streetphotography", "outdoor", "weekend", "fun", "bw", "favorite", "old", "europe", "world",
    "geotagged", "interesting", "cool", "family", "new", "random", "snapshot", "nice", "candid", "abandoned", "closeup",
    "shadow", "pattern", "project365", "texture", "happy", "lonely", "silence", "memory", "detail", "music", "coffee",
    "walkabout", "perspective", "geometry", "mood", "birthday", "monday", "lines", "test", "upload", "untitled",
    "dream", "quiet", "busy", "waiting", "strange", "vintage", "retro", "vivid", "contrast", "minimal", "symmetry",
    "wow", "smile", "funny", "crazy", "sunday", "lost", "blue", "yellow", "orange", "framed", "crop", "blur", "bokeh",
    "noflash", "diary", "january2024", "pic", "img", "school", "work", "lunchbreak", "commute", "secret", "magic",
)  # fmt: skip
# how readily people write about a kind; 1 where nothing else is said
_INTEREST = {
    "person": 1.2, "dog": 2.0, "cat": 2.0, "horse": 2.0, "duck": 1.6, "bird": 1.4, "boat": 1.6, "kite": 1.8,
    "building": 0.7, "sky": 0.7, "road": 0.5, "pavement": 0.2, "grass": 0.5, "street lamp": 0.4, "traffic light": 0.5,
    "car": 0.8, "tree": 0.8, "flower": 1.4, "water": 1.2, "hill": 0.8, "wall": 0.4, "fence": 0.4,
}  # fmt: skip
_LISTS = (_NIGHT, _EARLY, _LATE, _GEAR, _NOISE)
_GROUPS = [words for group in (WORDS, _WEATHER, _SEASONS, _ROLES) for words in group.values()]
# all words that can occur, but for the names of cities and cameras
TAGS: tuple[str, ...] = tuple(dict.fromkeys(word for words in (*_GROUPS, *_LISTS) for word in words))
_ZIPF = list(accumulate(1 / (place + 1) for place in range(max(map(len, (_NOISE, *WORDS.values()))))))
Draw = Callable[[], float]


def write(shot: Shot, seen: Sequence[SeenItem], pixels: int, seed: int) -> tuple[str, ...]:
    """The tags of one photograph, each once."""
    habits = iter(_habits(seed, shot.walker)).__next__
    draw = iter(rng_for(seed, shot.key, "tags").random(256).tolist()).__next__
    words: list[str] = []
    if draw() < 0.06:
        return ()
    effort = (0.6 + 0.8 * habits()) * (0.6 + 0.8 * draw())
    words += _about_the_person(shot, habits, draw)
    words += _about_the_things(seen, pixels, effort, draw)
    words += _about_the_day(shot, effort, draw)
    for _ in range(int(5 * draw() * effort)):
        words.append(pick(_NOISE, draw))
    if draw() < 0.15:  # about something that is not in the picture
        words.append(pick(WORDS[CLASSES[int(draw() * len(CLASSES))]], draw))
    return tuple(dict.fromkeys(words))


@lru_cache(maxsize=4096)
def _habits(seed: int, walker: str) -> tuple[float, ...]:
    return tuple(rng_for(seed, walker, "tag habits").random(8).tolist())


def pick(words: Sequence[str], draw: Draw) -> str:
    """One of the words: the first one most often, the n-th one n times more rarely."""
    level = draw() * _ZIPF[len(words) - 1]
    return next(word for word, reached in zip(words, _ZIPF) if level < reached)


def _about_the_person(shot: Shot, habits: Draw, draw: Draw) -> list[str]:
    """What one puts under all of one's pictures."""
    brand = shot.camera.name.split()[0].lower()
    always = [(pick(_NOISE, habits), 0.5), (pick(_NOISE, habits), 0.25 + 0.5 * habits()), (brand, 0.4 * habits())]
    always += [(shot.city.lower().replace(" ", ""), 0.3 + 0.5 * habits()), (pick(_ROLES[shot.role], draw), 0.4)]
    always += [(pick(_GEAR, draw), 0.1)]
    return [word for word, chance in always if draw() < chance]


def _about_the_things(seen: Sequence[SeenItem], pixels: int, effort: float, draw: Draw) -> list[str]:
    areas: dict[str, int] = {}
    for one in seen:
        areas[one.kind] = areas.get(one.kind, 0) + one.item.area
    words = []
    for kind, area in areas.items():
        interest = 1.8 if kind in SIGHTS else _INTEREST.get(kind, 1.0)
        chance = min(0.85, effort * interest * (0.05 + 2.0 * (area / pixels) ** 0.5))
        if draw() < chance:
            words.append(pick(WORDS[kind], draw))
            if draw() < 0.25 * effort:  # and in other words
                words.append(pick(WORDS[kind], draw))
    return words


def _about_the_day(shot: Shot, effort: float, draw: Draw) -> list[str]:
    words = []
    if draw() < _WEATHER_NOTED[shot.weather] * effort:
        words.append(pick(_WEATHER[shot.weather], draw))
    if draw() < 0.15 * effort:
        words.append(pick(_SEASONS[shot.season], draw))
    if shot.night and draw() < 0.75 * effort:
        words.append(pick(_NIGHT, draw))
    if not shot.night and shot.time < 9 * 3600 and draw() < 0.25 * effort:
        words.append(pick(_EARLY, draw))
    if not shot.night and shot.time > 16 * 3600 and draw() < 0.25 * effort:
        words.append(pick(_LATE, draw))
    return words
