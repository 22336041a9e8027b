"""What the page of the demo says about the models at work: located photos, the day, searches."""

from __future__ import annotations

from dataclasses import dataclass

from wayfare.demo.page_parts import LocatedPhoto, LocateExample
from wayfare.encounters.record import TourRecord
from wayfare.encounters.report_figures import distribution_figure, progress_figure
from wayfare.pages.figures import Figure
from wayfare.pages.tables import number


@dataclass(frozen=True)
class LocateVerdict:
    """An answer in words, and whether it is right."""

    answer: str
    truth: str
    good: bool


def verdict(found: LocateExample, number: int, photo: LocatedPhoto) -> LocateVerdict:
    """What the model answers for a photo, and how that compares with the truth."""
    answer = f"Answer: {found.city.name}, at {number} on the map."
    if photo.unknown is None:
        answer = "The model has no confidence for its answers."
    elif photo.unknown:
        answer = "Answer: unknown place."
    confidence = "" if photo.confidence is None else f" Confidence {photo.confidence:.2f}."
    if photo.metres is None:
        good = photo.unknown is True
        truth = f"Right: it was {photo.about}." if good else f"Wrong: it was {photo.about}, which is not in the index."
        return LocateVerdict(answer, truth + confidence, good)
    near = photo.metres <= found.radius
    truth = f"It is {photo.metres:.0f} m off: {'right' if near else 'wrong'}."
    if photo.unknown:
        truth = f"Its best guess was {photo.metres:.0f} m off."
    return LocateVerdict(answer, truth + confidence, near and photo.unknown is not True)


def all_located(found: LocateExample) -> str:
    """The results of all photos."""
    text = (
        "The photos are chosen by a rule, not by how they came out. The first two: of the photos that the model "
        "answers, and whose neighbours on the same walk it locates close by, those at a third and two thirds of the "
        "list. The third: the middle one of another city’s, which is not in the index. Of all "
        f"{number(found.queries)} photos of {found.city.name}, {number(found.right)} were located within "
        f"{found.radius:g} m."
    )
    if found.threshold is None:
        return f"{text} There were too few photos to learn confidence from."
    if not found.is_certain:
        text += (
            " No confidence is high enough to be certain that nine of ten answers are right; here those with a "
            f"confidence of {found.threshold:g} or more are taken."
        )
    return (
        f"{text} The model may answer “unknown”. It did so for {number(found.queries - found.accepted)} of them; of "
        f"the other {number(found.accepted)} answers {number(found.accepted_right)} were right. Of "
        f"{number(found.outside)} photos from other cities, it called {number(found.refused)} unknown."
    )


def day_figures(tour: TourRecord | None) -> list[Figure]:
    """How good the phones' models became."""
    if tour is None:
        return []
    ends = [one.of("accuracy") if one is not None else None for one in (tour.initial, tour.final)]
    drawn = (progress_figure(tour), distribution_figure("tour-distribution", "accuracy", *ends))
    return [figure for figure in drawn if figure is not None]
