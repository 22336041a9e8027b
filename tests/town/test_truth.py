"""The truth about pictures that are drawn by hand: one letter is a square of pixels that shows one part."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from wayfare.town import words
from wayfare.town.items import MIN_AREA, MIN_SMALL, gather
from wayfare.town.labels import PictureFacts, attributes, labels
from wayfare.town.model import Camera, PicturePart, Shot, Thing, Truth, View
from wayfare.town.relations import ItemRelation, candidates, choose
from wayfare.town.tags import WORDS, write
from wayfare.town.truth import ATTRIBUTES, LABELS, TAGS, describe, two_level

CAMERA = Camera("Pocket 1", 70.0, height=1.6, gain=(1.0, 1.0, 1.0), gamma=1.0, noise=2.0, vignette=0.1)
SHOT = Shot(
    key="k" * 22, city="New Aldmoor", walker="walker-1", sequence="s" * 22, frame=0, x=0.0, y=0.0, heading=0.0,
    time=12 * 3600.0, date="2024-04-21", camera=CAMERA, weather="clear", season="spring", night=False,
    direction="Forward", pano=False, role="resident",
)  # fmt: skip
SURFACES = {
    "s": PicturePart("sky", None, 1e6), "b": PicturePart("building", None, 20.0, 0),
    "B": PicturePart("building", None, 5.0, 1),
    "r": PicturePart("road", None, 2.0), "p": PicturePart("pavement", None, 2.0), "q": PicturePart("square", None, 2.0),
    "g": PicturePart("grass", None, 2.0), "w": PicturePart("water", None, 8.0), "t": PicturePart("tree", None, 10.0),
    "f": PicturePart("fence", None, 7.0), "h": PicturePart("hill", None, 300.0), "o": PicturePart("flower", None, 5.0),
}  # fmt: skip


def thing(number: int, kind: str, distance: float, doing: tuple[str, int] | None = None, z: float = 0.0) -> PicturePart:
    return PicturePart(
        kind,
        Thing(number, kind, 0.0, 0.0, z=z, width=1.0, depth=1.0, height=1.0, heading=0.0, look=number, doing=doing),
        distance,
    )


def picture(art: str, scale: int = 4, colour: tuple[int, int, int] = (90, 90, 90), **things: PicturePart) -> View:
    """A view: each letter of the art stands for `scale` x `scale` pixels of a surface, or of the thing of that name."""
    known = SURFACES | things
    rows = art.split()
    names = sorted({letter for row in rows for letter in row})
    letters = np.array([[names.index(letter) for letter in row] for row in rows], np.int16)
    segments = np.kron(letters, np.ones((scale, scale), np.int16))
    parts = tuple(known[name] for name in names)
    pixels = np.empty((*segments.shape, 3), np.uint8)
    pixels[:] = colour
    return View(pixels, segments, parts, tuple(part.thing for part in parts if part.thing is not None))


def holds(view: View) -> set[tuple[str, str, str]]:
    """All relations of a picture, in words."""
    seen, segments = gather(view)
    return {(seen[one.subject].kind, one.predicate, seen[one.object].kind) for one in candidates(seen, segments)}


# ---- Items


def test_boxes_and_areas_of_a_picture_of_twelve_by_sixteen() -> None:
    view = picture("ssss bbXs rrXr", X=thing(7, "person", 5.0))
    truth = describe(SHOT, view, 0)
    # things first; then surfaces in the order of the parts: b, r, s
    assert [item.kind for item in truth.items] == ["person", "building", "road", "sky"]
    assert [item.box for item in truth.items] == [(8, 4, 12, 12), (0, 4, 8, 8), (0, 8, 16, 12), (0, 0, 16, 8)]
    assert [item.area for item in truth.items] == [32, 32, 48, 80]
    assert [item.segment for item in truth.items] == [0, 1, 2, 3]
    assert truth.segments.dtype == np.int16
    assert truth.segments[0, 0] == 3
    assert truth.segments[11, 11] == 0
    assert [int((truth.segments == place).sum()) for place in range(4)] == [32, 32, 48, 80]


def test_buildings_are_one_item_and_people_are_two() -> None:
    view = picture("ssss bsBs XrrY", X=thing(1, "person", 5.0), Y=thing(2, "person", 6.0))
    seen, _ = gather(view)
    assert [one.kind for one in seen] == ["person", "person", "building", "road", "sky"]
    building = seen[2]
    assert building.item.area == 32
    assert building.item.box == (0, 4, 12, 8)
    assert building.distance == 5.0  # the nearer one's


def test_a_thing_that_is_seen_in_two_pieces_is_one_item() -> None:
    behind = thing(1, "car", 9.0)
    view = picture("XtY rrr", X=behind, Y=behind)
    seen, _ = gather(view)
    assert [(one.kind, one.item.box, one.item.area) for one in seen if one.thing] == [("car", (0, 0, 12, 4), 32)]


def test_what_is_too_small_is_no_item_and_its_pixels_are_void() -> None:
    view = picture("sss sXr rrr", scale=3, X=thing(1, "person", 30.0))  # nine pixels
    truth = describe(SHOT, view, 0)
    assert (MIN_AREA, MIN_SMALL) == (12, 6)
    assert [item.kind for item in truth.items] == ["road", "sky"]
    assert (truth.segments == -1).sum() == 9
    assert (truth.segments[3:6, 3:6] == -1).all()
    large = picture("sss sXr rrr", scale=4, X=thing(1, "person", 30.0))  # sixteen
    assert [item.kind for item in describe(SHOT, large, 0).items] == ["person", "road", "sky"]


def test_small_kinds_may_be_smaller() -> None:
    dog = picture("sss sXr rrr", scale=3, X=thing(1, "dog", 30.0))  # nine pixels
    assert [one.kind for one in gather(dog)[0]] == ["dog", "road", "sky"]
    tiny = picture("ssss ssss sXrr rrrr", scale=2, X=thing(1, "dog", 30.0))  # four
    assert [one.kind for one in gather(tiny)[0]] == ["road", "sky"]


def test_what_the_fog_hides_is_no_item() -> None:
    view = picture("sss hhX rrr", X=thing(1, "tower", 80.0))
    assert [one.kind for one in gather(view)[0]] == ["tower", "hill", "road", "sky"]
    seen, segments = gather(view, "fog")
    assert [one.kind for one in seen] == ["road", "sky"]
    assert (segments[4:8] == -1).all()


def test_a_tree_is_a_surface_although_it_is_a_thing_of_the_map() -> None:
    view = picture("XsY ggg", X=thing(1, "tree", 5.0), Y=thing(2, "tree", 6.0))
    seen, _ = gather(view)
    assert [(one.kind, one.thing, one.item.area) for one in seen] == [
        ("tree", None, 32), ("grass", None, 48), ("sky", None, 16)
    ]  # fmt: skip


# ---- Relations


STREET = "ssssss bbbbbb bbXbbb ppXppp ppXppp pppppp"


@pytest.mark.parametrize("doing", ["walking on", "standing on", "running on"])
def test_an_action_without_a_partner_is_done_on_the_ground_under_the_feet(doing: str) -> None:
    view = picture(STREET, X=thing(1, "person", 6.0, (doing, -1)))
    found = holds(view)
    assert ("person", doing, "pavement") in found
    assert ("person", "on", "pavement") not in found


def test_the_ground_is_found_beside_the_feet_where_the_picture_ends_under_them() -> None:
    cut = picture("ssssss bbbbbb bbXbbb rrXrrr", X=thing(1, "person", 3.0, ("walking on", -1)))
    assert ("person", "walking on", "road") in holds(cut)
    hidden = picture(
        "ssssss bbXbbb bYYYbb bYYYbb", X=thing(1, "person", 6.0, ("walking on", -1)), Y=thing(2, "car", 4.0)
    )
    assert not any(predicate == "walking on" for _, predicate, _ in holds(hidden))


def test_an_action_needs_both_in_the_picture() -> None:
    rider, bike = thing(1, "person", 6.0, ("riding", 2), z=0.5), thing(2, "bicycle", 6.0, ("driving on", -1))
    both = holds(picture("ssss bXbb bYbb rYrr rrrr", X=rider, Y=bike))
    assert ("person", "riding", "bicycle") in both
    assert ("bicycle", "driving on", "road") in both
    assert not {("person", "beside", "bicycle"), ("person", "in front of", "bicycle")} & both
    alone = holds(picture("ssss bXbb bXbb rrrr rrrr", X=rider))
    assert not any(predicate == "riding" for _, predicate, _ in alone)


def test_some_actions_are_directed_at_what_is_touched_or_straight_below() -> None:
    leaning = thing(1, "person", 6.0, ("leaning on", -1))
    assert ("person", "leaning on", "building") in holds(picture("sssss bbXss ppppp", X=leaning))
    assert not any(p == "leaning on" for _, p, _ in holds(picture("sssss sXsbb ppppp", X=leaning)))
    duck = thing(1, "duck", 9.0, ("swimming in", -1))
    assert ("duck", "swimming in", "water") in holds(picture("ggggg wwXww wwwww", X=duck))
    assert not any(p == "swimming in" for _, p, _ in holds(picture("wwwww ggggg ggXgg", X=duck)))
    bird = thing(1, "bird", 9.0, ("flying over", -1), z=6.0)
    assert ("bird", "flying over", "tree") in holds(picture("sssss ssXss sssss sttts ggggg", X=bird))
    assert ("bird", "flying over", "water") in holds(picture("sssss ssXss sssss tswst wwwww", X=bird))
    walker = thing(1, "person", 9.0, ("crossing", -1))
    assert ("person", "crossing", "road") in holds(picture("ssXss rrXrr ppppp", X=walker))


def test_what_only_stands_there_is_on_the_ground_or_in_it() -> None:
    statue = thing(1, "statue", 9.0, ("standing on", -1))
    inside = holds(picture("ssssss ssXsss qqXqqq qqqqqq", X=statue))
    assert ("statue", "in", "square") in inside
    assert ("statue", "on", "square") not in inside
    edge = holds(picture("ssssss ssXsss bbXqqq qqqqqq", X=statue))
    assert ("statue", "on", "square") in edge
    assert ("statue", "in", "square") not in edge
    bench = thing(1, "bench", 9.0)
    assert ("bench", "on", "pavement") in holds(picture("bbbbbb bbXbbb ppXppp pppppp", X=bench))
    held = thing(1, "bench", 9.0, z=1.0)  # in the air
    assert ("bench", "on", "pavement") not in holds(picture("bbbbbb bbXbbb ppXppp pppppp", X=held))


def test_in_front_of_needs_depth_and_overlap() -> None:
    art = "ssssss bYYYYb bYXYYb ppXppp pppppp"
    near, far = thing(1, "person", 5.0), thing(2, "car", 9.0)
    assert ("person", "in front of", "car") in holds(picture(art, X=near, Y=far))
    assert ("car", "in front of", "person") in holds(picture(art, X=thing(1, "person", 9.0), Y=thing(2, "car", 5.0)))
    level = holds(picture(art, X=near, Y=thing(2, "car", 5.5)))
    assert not {("person", "in front of", "car"), ("car", "in front of", "person")} & level
    apart = holds(picture("ssssss YYYYbb YYYYbX pppppX pppppp", X=near, Y=far))
    assert ("person", "in front of", "car") not in apart


def test_beside_needs_the_same_depth_and_little_between() -> None:
    art = "ssssssss bXYYbbbb bXYYbbbb pppppppp"
    person, car = thing(1, "person", 8.0), thing(2, "car", 9.0)
    assert ("person", "beside", "car") in holds(picture(art, X=person, Y=car))
    assert ("person", "beside", "car") not in holds(picture(art, X=person, Y=thing(2, "car", 12.0)))
    far = "ssssssss XbbbbbYY XbbbbbYY pppppppp"  # the gap is wider than the car
    assert ("person", "beside", "car") not in holds(picture(far, X=person, Y=car))


def test_a_thing_before_a_building_and_beside_it() -> None:
    lamp = thing(1, "street lamp", 8.0)
    before = holds(picture("ssssss bbXbbb bbXbbb pppppp", X=lamp))
    assert ("street lamp", "in front of", "building") in before
    beside = holds(picture("ssssss bbXsss bbXsss pppppp", X=lamp))
    assert ("street lamp", "beside", "building") in beside
    assert ("street lamp", "in front of", "building") not in beside
    neither = holds(picture("ssssss bsXsss bsXsss pppppp", X=lamp))
    assert not any(o == "building" and s == "street lamp" for s, _, o in neither)


def test_a_tree_over_a_bench_or_behind_it() -> None:
    bench = thing(1, "bench", 8.0)
    assert ("tree", "over", "bench") in holds(picture("sttts sttts bXXbb ppppp", X=bench))
    behind = holds(picture("sttts sttts tXXtt ppppp", X=bench))
    assert ("tree", "over", "bench") not in behind
    assert ("bench", "in front of", "tree") in behind


def test_a_fence_that_ends_at_a_house_is_attached_to_it() -> None:
    assert ("fence", "attached to", "building") in holds(picture("ssssss bbbsss bbffff bbffff gggggg"))
    found = holds(picture("ssssss bbbbbb bffffb bffffb gggggg"))
    assert ("fence", "in front of", "building") in found
    assert ("fence", "attached to", "building") not in found
    assert ("tree", "beside", "building") in holds(picture("ssssss bbtsss bbtsss gggggg"))
    assert ("tree", "in front of", "building") in holds(picture("ssssss bbtbss bbtbss gggggg"))


def test_a_banner_hangs_from_its_lamp_or_is_seen_attached_to_it() -> None:
    lamp, banner = thing(1, "street lamp", 8.0), thing(2, "banner", 8.0, ("hanging from", 1), z=2.7)
    aside = holds(picture("sssss sXYss sXYss sXsss ppppp", X=lamp, Y=banner))
    assert ("banner", "attached to", "street lamp") in aside
    before = holds(picture("ssXss sXYXs sXYXs ssXss ppppp", X=lamp, Y=banner))
    assert ("banner", "hanging from", "street lamp") in before


def test_the_sky_is_over_what_it_borders_on_from_above() -> None:
    found = holds(picture("ssssss sbbssh rbbtth rrrrrr"))
    assert {("sky", "over", "building"), ("sky", "over", "tree"), ("sky", "over", "hill")} <= found
    assert ("sky", "over", "road") not in found  # one column of six
    person = thing(1, "person", 30.0)
    art = "ssssssssss sssssXssss ssssssssss rrrrrrrrrr rrrrrrrrrr rrrrrrrrrr rrrrrrrrrr"
    assert ("sky", "over", "person") not in holds(picture(art, X=person))  # a seventieth of it is too small for that
    assert ("sky", "over", "statue") in holds(picture(art, X=thing(1, "statue", 30.0)))


def test_cars_are_on_roads_whatever_hides_these() -> None:
    car = thing(1, "car", 30.0, ("parked on", -1))
    assert ("car", "parked on", "road") in holds(picture("bbbb bXbb rrrr", X=car))
    hidden = holds(picture("bbbb bXbb gggg", X=car))  # the road behind the lawn is not seen
    assert not any(predicate == "parked on" for _, predicate, _ in hidden)
    assert ("bicycle", "parked on", "grass") in holds(
        picture("bbbb bXbb gggg", X=thing(1, "bicycle", 30.0, ("parked on", -1)))
    )


def test_surfaces_lie_beside_or_in_front_of_each_other() -> None:
    along = holds(picture("ssssss ppprrr pprrrr prrrrr"))  # a slanted kerb: the road is the nearer one
    assert ("road", "beside", "pavement") in along
    assert ("pavement", "beside", "road") not in along  # each pair once
    across = holds(picture("ssssss rrrrrr pppppp pppppp"))
    assert ("pavement", "in front of", "road") in across
    assert ("road", "in front of", "pavement") not in across
    assert ("pavement", "beside", "road") not in across
    assert ("road", "in front of", "building") in holds(picture("bbbb rrrr rrrr"))
    assert ("road", "beside", "building") in holds(picture("bbbr bbrr brrr"))


def test_what_surrounds_encloses() -> None:
    assert ("fence", "enclosing", "grass") in holds(picture("ssssss ffffff fggggf fggggf pppppp"))
    assert ("fence", "enclosing", "grass") not in holds(picture("ssssss ffffff gggggg gggggg pppppp"))


def test_trees_grow_on_what_is_below_their_trunk() -> None:
    found = holds(picture("ssssssss sttttsss sttttsss sstsssss gggggggg"))
    assert ("tree", "growing on", "grass") in found
    assert ("tree", "over", "grass") not in found
    wide = holds(picture("ssssss ssttss gggggg"))  # a crown, and no trunk
    assert ("tree", "over", "grass") in wide
    assert ("tree", "growing on", "grass") not in wide


def crowded() -> View:
    """Many things that all relate to each other."""
    doing = ("walking on", -1)
    people = {name: thing(place, "person", 5.0 + 1.5 * place, doing) for place, name in enumerate("ABCDEFGH")}
    art = "ssssssssssssssss bbbbbbttbbbbbsss bbAABBttCCDDbsEE ppAABBppCCDDppEE ppFFppGGHHppppEE rrFFrrGGHHrrrrrr"
    return picture(art, **people)


def test_only_some_of_what_holds_is_written_down() -> None:
    view = crowded()
    seen, segments = gather(view)
    found = candidates(seen, segments)
    lengths = []
    for number in range(200):
        chosen = choose(found, seen, segments.shape, np.random.default_rng(number))
        plainly = {one._replace(predicate="on") for one in found if one.predicate == "walking on"}
        assert set(chosen) <= set(found) | plainly
        assert len(set(chosen)) == len(chosen)
        assert all(one.subject != one.object for one in chosen)
        lengths.append(len(chosen))
    assert len(set(found)) == len(found) > 20
    assert 4 <= np.mean(lengths) <= 9
    assert len(set(lengths)) > 2
    assert choose([], seen, segments.shape, np.random.default_rng(0)) == ()


def test_a_pair_seldom_has_two_predicates() -> None:
    view = picture(STREET, X=thing(1, "person", 6.0, ("walking on", -1)))
    seen, segments = gather(view)
    person, ground = 0, [one.kind for one in seen].index("pavement")
    twice = [(person, ground, "walking on"), (person, ground, "crossing")]
    both = sum(
        len(choose([ItemRelation(*one) for one in twice], seen, segments.shape, np.random.default_rng(number))) == 2
        for number in range(500)
    )
    assert 110 <= both <= 190  # three pictures in ten


def test_a_plainer_word_is_used_now_and_then() -> None:
    view = picture(STREET, X=thing(1, "person", 6.0, ("walking on", -1)))
    seen, segments = gather(view)
    found = [ItemRelation(0, [one.kind for one in seen].index("pavement"), "walking on")]
    said = [choose(found, seen, segments.shape, np.random.default_rng(number))[0].predicate for number in range(500)]
    assert set(said) == {"walking on", "on"}
    assert 25 <= said.count("on") <= 80  # a tenth


def test_who_does_something_else_stands_walks_or_runs_as_well() -> None:
    other = thing(2, "person", 6.0, ("standing on", -1))
    art = "ssssssss bXXbbYYb pXXppYYp pppppppp"

    def posture(doing: tuple[str, int], **changes: Any) -> set[str]:
        part = thing(1, "person", 6.0, doing)
        assert part.thing is not None
        tall = part._replace(thing=part.thing._replace(**{"height": 1.7} | changes))
        view = picture(art, X=tall, Y=other)
        seen, segments = gather(view)
        return {
            one.predicate
            for one in candidates(seen, segments)
            if one.subject == 0 and seen[one.object].kind == "pavement"
        }

    assert posture(("talking to", 2)) == {"standing on"}
    assert posture(("pulling", 2)) == {"walking on"}
    assert posture(("chasing", 2)) == {"running on"}
    assert posture(("walking on", -1)) == {"walking on"}
    assert posture(("talking to", 2), height=0.9) == set()  # sits
    assert posture(("riding", 2)) == set()
    assert posture(("talking to", 2), z=0.5) == set()
    crossing = picture(
        "ssXss rrXrr rrrrr",
        X=thing(1, "person", 9.0, ("crossing", -1))._replace(
            thing=Thing(1, "person", 0, 0, z=0, width=1, depth=1, height=1.7, heading=0, look=0, doing=("crossing", -1))
        ),
    )
    assert {("person", "crossing", "road"), ("person", "walking on", "road")} <= holds(crossing)


def test_a_thing_at_the_edge_of_a_surface_is_beside_the_next_one() -> None:
    lamp = thing(1, "street lamp", 6.0)
    found = holds(picture("ssssss ssXsss ppXrrr ppprrr", X=lamp))
    assert {("street lamp", "on", "pavement"), ("street lamp", "beside", "road")} <= found
    inland = holds(picture("ssssss ssXsss ppXppr pppppr", X=lamp))
    assert ("street lamp", "beside", "road") not in inland


def test_an_empty_picture_of_one_surface() -> None:
    truth = describe(SHOT, picture("ss ss"), 0)
    assert truth.relations == ()
    assert [item.kind for item in truth.items] == ["sky"]
    assert "sky" in truth.labels


# ---- The whole truth


def same(a: Truth, b: Truth) -> bool:
    parts = ("items", "relations", "tags", "labels", "attributes")
    return all(getattr(a, part) == getattr(b, part) for part in parts) and bool((a.segments == b.segments).all())


def test_the_same_shot_view_and_seed_give_the_same_truth() -> None:
    view = crowded()
    assert same(describe(SHOT, view, 3), describe(SHOT, view, 3))
    others = [describe(replace(SHOT, key=f"{number:022d}"), view, 3) for number in range(5)]
    assert len({truth.relations for truth in others}) > 1
    assert len({truth.tags for truth in others}) > 1
    assert describe(SHOT, view, 4).tags != describe(SHOT, view, 3).tags
    # what is not drawn does not depend on the seed
    assert describe(SHOT, view, 4).labels == describe(SHOT, view, 3).labels


# ---- Labels and attributes


def of(view: View, **circumstances: Any) -> tuple[set[str], set[str]]:
    seen, segments = gather(view)
    scene = PictureFacts(replace(SHOT, **circumstances), seen, segments, view.pixels)
    return set(labels(scene)), set(attributes(scene))


def test_the_lists_are_as_long_as_the_real_ones() -> None:
    assert len(LABELS) == len(set(LABELS)) == 24
    assert len(ATTRIBUTES) == len(set(ATTRIBUTES)) == 40
    assert list(ATTRIBUTES) == sorted(ATTRIBUTES)
    assert list(LABELS) == sorted(LABELS)


def test_labels_of_a_street() -> None:
    view = picture(STREET, X=thing(1, "person", 6.0))
    # six by six letters: sky 6, building 11, person 3, pavement 16
    assert of(view)[0] == {"people", "portrait", "sky", "structures"}
    small = picture("sssssss bbbbbbb bbbbbbb ppXpppp ppppppp ppppppp", X=thing(1, "person", 6.0))
    assert of(small)[0] == {"people", "sky", "structures"}  # a sixth of the height is no portrait


def test_labels_of_circumstances() -> None:
    view = picture("sss bbb ppp")
    assert of(view)[0] == {"sky", "structures"}
    assert of(view, night=True)[0] == {"night", "sky", "structures"}
    assert of(view, weather="fog")[0] == {"fog", "sky", "structures"}
    assert of(view, weather="rain")[0] == {"clouds", "rain", "sky", "structures"}
    assert of(view, weather="rain", night=True)[0] == {"night", "rain", "sky", "structures"}
    assert of(view, weather="snow")[0] == {"clouds", "snow", "sky", "structures"}


def test_labels_of_kinds() -> None:
    dog, bird, cake = thing(1, "dog", 5.0), thing(2, "duck", 6.0), thing(3, "cake", 6.0)
    assert of(picture("sss bXb ggg", X=dog))[0] == {"animals", "dog", "plant_life", "sky", "structures"}
    assert of(picture("sss wXw www", X=bird))[0] == {"animals", "bird", "sky", "water"}
    assert of(picture("bbb qXq qqq", X=cake))[0] == {"food", "square", "structures"}
    # the sky is a ninth of it, and no more than that
    assert of(picture("sth rXr ooo", X=thing(4, "car", 6.0)))[0] == {
        "car", "flower", "hill", "plant_life", "street", "transport", "tree"
    }  # fmt: skip
    assert of(picture("bbb qXq qqq", X=thing(4, "temple", 6.0)))[0] == {"sights", "square", "structures"}


def test_attributes_of_a_picture() -> None:
    view = picture("sss bbb ppp", colour=(90, 90, 90))
    assert of(view)[1] == {"Clear_Weather", "Empty_Street", "Low_Contrast"}
    assert of(picture("sss bbb ppp", colour=(20, 20, 20)), night=True)[1] == {
        "Clear_Weather", "Dark", "Empty_Street", "Low_Contrast", "Night"
    }  # fmt: skip
    assert of(picture("sss BBB ppp", colour=(200, 200, 120)), season="summer", weather="cloudy")[1] == {
        "Bright", "Close_Building", "Cloudy", "Colourful", "Empty_Street", "Low_Contrast", "Summer"
    }  # fmt: skip


def test_a_red_car_is_red_in_the_picture() -> None:
    view = picture("bbb rXr rrr", X=thing(1, "car", 5.0))
    wide = picture("bbb XXX rrr", X=thing(1, "car", 5.0))
    assert "Red_Car" not in of(wide)[1]
    wide.pixels[4:8] = (180, 40, 40)
    assert "Red_Car" in of(wide)[1]
    view.pixels[4:8, 4:8] = (180, 40, 40)
    assert "Red_Car" not in of(view)[1]  # sixteen pixels are too few to tell


def test_the_sky_is_golden_and_far_brighter_than_the_ground() -> None:
    view = picture("ssssss bbbbbb pppppp")
    view.pixels[:4] = (90, 120, 160)
    assert "sunset" not in of(view)[0]
    assert "Backlit" not in of(view)[1]
    view.pixels[:4] = (250, 220, 180)  # 217 on average is more than 2.3 times 90
    assert "sunset" in of(view)[0]
    assert "Backlit" in of(view)[1]
    assert "sunset" not in of(view, night=True)[0]
    assert "Backlit" not in of(view, night=True)[1]
    reddish = replace(CAMERA, gain=(1.6, 1.0, 1.0))  # 250 / 1.6 is less than 180
    assert "sunset" not in of(view, camera=reddish)[0]


def test_buildings_at_both_edges_and_at_the_top() -> None:
    assert {"Street_Canyon", "Tall_Building"} <= of(picture("bssb bssb rrrr rrrr"))[1]
    one = of(picture("bsss bsss rrrr rrrr"))[1]
    assert not {"Street_Canyon", "Tall_Building"} & one


# ---- Tags


def tags_of(view: View, count: int, seed: int = 0, **circumstances: Any) -> list[tuple[str, ...]]:
    seen, segments = gather(view)
    shots = [replace(SHOT, key=f"{n:022d}", walker=f"w{n % 20}", **circumstances) for n in range(count)]
    return [write(shot, seen, segments.size, seed) for shot in shots]


def test_the_vocabulary() -> None:
    assert 300 <= len(TAGS) <= 600
    assert len(set(TAGS)) == len(TAGS)
    assert all(tag == tag.lower() and " " not in tag for tag in TAGS)
    assert set(WORDS) == set(words.CLASSES)


def test_tags_are_about_the_picture_but_incomplete_and_noisy() -> None:
    dog = picture("ssssss bbbbbb bXXbbb pXXppp pppppp", X=thing(1, "dog", 5.0))
    empty = picture("ssssss bbbbbb bbbbbb pppppp pppppp")
    about = set(WORDS["dog"])
    with_dog = np.mean([bool(about & set(tags)) for tags in tags_of(dog, 400)])
    without = np.mean([bool(about & set(tags)) for tags in tags_of(empty, 2000)])
    assert 0.3 < with_dog < 0.9
    assert 0 < without < 0.05  # written about something else
    assert 0.02 < np.mean([not tags for tags in tags_of(dog, 400)]) < 0.12
    used = {tag for tags in tags_of(dog, 400) for tag in tags}
    assert used <= set(TAGS) | {"newaldmoor", "pocket"}
    assert len(about & used) >= 4  # one thing in several words
    assert all(len(set(tags)) == len(tags) for tags in tags_of(dog, 400))


def test_the_first_word_is_the_most_frequent() -> None:
    view = picture("ssssss bbbbbb bXXbbb pXXppp pppppp", X=thing(1, "dog", 5.0))
    counts = {word: sum(word in tags for tags in tags_of(view, 800)) for word in WORDS["dog"]}
    assert counts["dog"] > counts["puppy"] > 0
    assert counts["dog"] > 2 * counts["perro"]


def test_large_things_are_named_more_often() -> None:
    large = picture("ssssss XXXXXX XXXXXX pppppp", X=thing(1, "statue", 5.0))
    small = picture("ssssss bbbbbb bbXbbb pppppp", X=thing(1, "statue", 50.0))
    about = set(WORDS["statue"])
    shares = [np.mean([bool(about & set(tags)) for tags in tags_of(view, 400)]) for view in (large, small)]
    assert shares[0] > shares[1] + 0.1


def test_circumstances_are_noted_sometimes() -> None:
    view = picture("sss bbb ppp")
    by_night = np.mean(["night" in tags for tags in tags_of(view, 400, night=True)])
    by_day = np.mean(["night" in tags for tags in tags_of(view, 400)])
    assert by_day < 0.02
    assert 0.1 < by_night < 0.6
    assert 0.1 < np.mean([bool({"snow", "snowy", "schnee"} & set(t)) for t in tags_of(view, 400, weather="snow")]) < 0.9


def test_people_have_habits() -> None:
    view = picture("sss bbb ppp")
    seen, segments = gather(view)
    by_walker = [
        [write(replace(SHOT, walker=walker, key=f"{n:022d}"), seen, segments.size, 0) for n in range(100)]
        for walker in ("a", "b", "c", "d", "e", "f")
    ]
    favourites = []
    for written in by_walker:
        counts = {tag: sum(tag in tags for tags in written) for tag in TAGS}
        favourites.append(max(counts, key=lambda tag: counts[tag]))
        assert max(counts.values()) > 30
    assert len(set(favourites)) > 2


# ---- Words


def test_super_classes_hold_every_word_once() -> None:
    grouped = words.categorised()
    assert list(grouped) == ["categories", "relations"]
    kinds = [kind for members in grouped["categories"].values() for kind in members]
    names = [name for members in grouped["relations"].values() for name in members]
    assert sorted(kinds) == sorted(words.CLASSES)
    assert len(set(kinds)) == len(kinds)
    assert sorted(names) == sorted(words.PREDICATE_CLASSES)
    assert len(set(names)) == len(names)


def test_two_levels() -> None:
    assert two_level("person") == (0, 0)
    assert two_level("bicycle") == (1, 1)
    assert two_level("boat") == (1, 6)
    assert two_level("traffic light") == (2, 7)
    assert two_level("windmill") == (len(words.THINGS) - 1, len(words.THING_CLASSES) - 1)
    groups = {two_level(kind)[0] for kind in words.THING_CLASSES}
    assert groups == set(range(len(words.THING_GROUPS)))
    with pytest.raises(KeyError):
        two_level("sky")
