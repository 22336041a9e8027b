"""What the page of the demo shows of the models at work: located photos, the day, a scene graph, searches."""

from __future__ import annotations

from wayfare.reports.dataset_parts import Picture
from wayfare.reports.figures import Figure
from wayfare.reports.page import Html, picture, several, tag
from wayfare.reports.story_maps import located_map
from wayfare.reports.story_parts import Graphing, LocatedPhoto, Locating, Searching
from wayfare.reports.story_words import points
from wayfare.reports.tables import number
from wayfare.reports.tour_figures import distribution_figure, progress_figure
from wayfare.reports.tour_player import Player
from wayfare.reports.tour_record import Tour


def image(shown: Picture) -> Html:
    """A photo."""
    return picture(shown.jpeg, shown.words, shown.width, shown.height)


# ---- Where was this photo taken?


def locating(found: Locating) -> list[Html]:
    """Three photos, and how all others came out."""
    cards = [_located(found, at, one) for at, one in enumerate(found.photos, start=1)]
    return [
        tag("h3", f"Three photos, looked for among {number(found.index)} of {found.city.name}"),
        tag("div", *cards, class_="located"),
        tag("div", located_map(found), tag("p", _all_located(found), class_="say"), class_="beside-map"),
    ]


def _located(found: Locating, at: int, one: LocatedPhoto) -> Html:
    if one.unknown is None:
        said = "It cannot say how sure it is."
    elif one.unknown:
        said = "“I do not know this place.”"
    else:
        said = f"“This is {found.city.name}, at {at} on the map.”"
    sure = "" if one.confidence is None else f" Confidence {one.confidence:.2f}."
    if one.known and one.metres is not None:
        off = f"It is {one.metres:.0f} m off"
        truth = f"{off}: right." if one.metres <= found.radius else f"{off}: wrong."
        good = (one.metres <= found.radius) and one.unknown is not True
        if one.unknown:
            truth = f"A pity: its guess was {one.metres:.0f} m off."
    else:
        good = one.unknown is True
        truth = f"Right: it was {one.about}." if good else f"Wrong: it was {one.about}, which is not in the index."
    mark = tag("span", "✓" if good else "✗", class_="mark good" if good else "mark bad", aria_hidden="true")
    pair = [tag("figure", image(one.picture), tag("figcaption", "the photo"))]
    if one.match is not None:
        pair.append(tag("figure", image(one.match), tag("figcaption", "most like it")))
    words = tag("p", mark, tag("b", said), f" {truth}{sure}")
    return tag("div", tag("p", tag("span", at, class_=f"pin pin{at}"), class_="pinned"),
               tag("div", *pair, class_="two"), words, class_="card-located")  # fmt: skip


def _all_located(found: Locating) -> str:
    asked = (
        f"The first two are those that the model was surest of, the third is of another city, whose places it was "
        f"never shown here. Of all {number(found.asked)} photos of {found.city.name} it put {number(found.right)} "
        f"within {found.radius:g} m of where they were taken."
    )
    if found.threshold is None:
        return f"{asked} There were too few photos to learn which answers to trust."
    trusted = (
        f" It is allowed to say that it does not know. It did so for {number(found.asked - found.accepted)} of them; "
        f"of the other {number(found.accepted)} answers {number(found.accepted_right)} were right. Of "
        f"{number(found.strangers)} photos of other cities it called {number(found.refused)} unknown."
    )
    return asked + trusted


# ---- The day


def day(tour: Tour | None, found: Player | None) -> list[Html]:
    """The map that plays."""
    if tour is None or found is None:
        return []
    met, taken = int(tour.slots["met"].sum()), len(tour.exchanges)
    words = (
        f"Press play to see the day: each dot is a phone, its colour how much its model recognises; squares "
        f"are signs that stand at the sights and take part. They met "
        f"{number(met)} times and took {several(taken, 'model')} from each other."
    )
    return [tag("h3", "The day, from six to six"), tag("p", words, class_="say"), found.body]


def tour_figures(tour: Tour | None) -> list[Figure]:
    """How good the phones became."""
    if tour is None:
        return []
    ends = [one.of("accuracy") if one is not None else None for one in (tour.initial, tour.final)]
    drawn = (progress_figure(tour), distribution_figure("tour-distribution", "accuracy", *ends))
    return [figure for figure in drawn if figure is not None]


# ---- How things relate


def graph(made: Graphing) -> list[Html]:
    """A photo, its graph, and the relations in words."""
    shown = made.shown
    photos = [image(one) for one in (made.photo, shown.picture) if one is not None]
    left = tag("div", *photos, class_="shot both")
    right = tag("div", shown.graph, class_="beside")
    listed = [
        tag("li", tag("span", "✓" if good else "?", class_="mark good" if good else "mark"),
            f" {subject} ", tag("i", word), f" {other}")
        for (subject, word, other, _), good in zip(shown.relations, made.right)
    ]  # fmt: skip
    words = (
        "A photo that nobody learnt from. The model was given its things and said how they relate: these are its "
        f"{len(shown.relations)} surest, and {sum(made.right)} of them are also in the town's own record (✓), "
        "which does not hold all that is true."
    )
    return [
        tag("h3", "A scene graph"), tag("p", words, class_="say"), tag("div", left, right, class_="pair"),
        tag("ul", *listed, class_="relations"),
    ]  # fmt: skip


# ---- Search


def search(one: Searching) -> Html:
    """What was found for some words."""
    cards = [
        tag(
            "figure",
            image(hit.picture) if hit.picture is not None else tag("div", "no picture", class_="lost"),
            tag("figcaption", tag("span", "✓" if hit.right else "✗", class_=f"mark {'good' if hit.right else 'bad'}"),
                f" {hit.labels}"),
        )
        for hit in one.found
    ]  # fmt: skip
    right = sum(hit.right for hit in one.found)
    words = (
        f"One of the two commonest things in the pictures. {right} of the first {len(one.found)} show one; of all that "
        f"were searched it is {points(one.share)} in 100."
    )
    return tag(
        "div", tag("h3", "Looking for ", tag("q", one.words)), tag("p", words, class_="say"),
        tag("div", *cards, class_="shots found-shots"), class_="searched",
    )  # fmt: skip
