"""Where the sun is, what it lights, and what a camera makes of it."""

from __future__ import annotations

import numpy as np
import pytest

from wayfare.town.camera.light import develop, light_for, sun_at
from wayfare.town.model import Camera, Shot

NEUTRAL = Camera("neutral", 90, height=1.5, gain=(1.0, 1.0, 1.0), gamma=1.0, noise=0.0, vignette=0.0)


def shot(**changes: object) -> Shot:
    values: dict[str, object] = {
        "key": "k", "city": "toy", "walker": "w", "sequence": "s", "frame": 0, "x": 0.0, "y": 0.0, "heading": 0.0,
        "time": 43200.0, "date": "2024-06-21", "camera": NEUTRAL, "weather": "clear", "season": "summer",
        "night": False, "direction": "Forward", "pano": False, "role": "resident",
    }  # fmt: skip
    return Shot(**{**values, **changes})  # type: ignore[arg-type]


def test_sun_at_noon_stands_in_the_south_as_high_as_the_calendar_says() -> None:
    elevation, heading = sun_at(48.0, "2023-06-21", 12 * 3600)
    assert elevation == pytest.approx(90 - 48 + 23.44, abs=0.1)
    assert heading == pytest.approx(180, abs=0.1)
    assert sun_at(48.0, "2023-12-21", 12 * 3600)[0] == pytest.approx(90 - 48 - 23.44, abs=0.1)


def test_sun_of_the_south_stands_in_the_north() -> None:
    elevation, heading = sun_at(-33.0, "2023-12-21", 12 * 3600)
    assert elevation == pytest.approx(90 - 33 + 23.44, abs=0.1)
    assert heading % 360 == pytest.approx(0, abs=0.1) or heading == pytest.approx(360, abs=0.1)


def test_sun_rises_in_the_east_at_six_on_the_equinox() -> None:
    elevation, heading = sun_at(48.0, "2023-03-21", 6 * 3600)
    assert elevation == pytest.approx(0, abs=0.6)
    assert heading == pytest.approx(90, abs=0.6)


def test_what_the_shot_says_about_night_goes_before_the_clock() -> None:
    noon, night = light_for(48.0, shot()), light_for(48.0, shot(night=True))
    assert noon.dark == 0
    assert night.dark == 1
    assert (night.ambient < noon.ambient / 2).all()
    assert light_for(48.0, shot(time=0.0)).dark < 1  # not called night: dusk at most


def test_weather_takes_the_sun_and_thickens_the_air() -> None:
    clear, *others = (light_for(48.0, shot(weather=name)) for name in ("clear", "cloudy", "rain", "fog", "snow"))
    for light in others:
        assert (light.sun_colour < clear.sun_colour / 4).all()
        assert light.thickness > clear.thickness
    assert others[2].thickness > 10 * clear.thickness  # fog


def picture(light: float, camera: Camera, dark: float = 0.0, side: int = 32) -> np.ndarray:
    return develop(np.full((3, side * side), light, np.float32), camera, dark, side, side, seed=12345)


def test_a_neutral_camera_shows_the_light_as_it_is() -> None:
    assert (picture(0.5, NEUTRAL) == 128).all()  # 127.5, rounded
    assert (picture(0.2, NEUTRAL) == 51).all()
    assert (picture(0.0, NEUTRAL) == 0).all()


def test_highlights_saturate_softly() -> None:
    values = [int(picture(light, NEUTRAL)[0, 0, 0]) for light in (0.8, 1.0, 1.3, 1.9, 50.0)]
    assert values == sorted(values)
    assert values[0] == 204
    assert 225 < values[1] < 245
    assert values[-1] == 255


def test_gain_and_gamma() -> None:
    warm = Camera("warm", 90, height=1.5, gain=(1.2, 1.0, 0.8), gamma=1.0, noise=0.0, vignette=0.0)
    assert picture(0.5, warm)[0, 0].tolist() == [153, 128, 102]
    hard = Camera("hard", 90, height=1.5, gain=(1.0, 1.0, 1.0), gamma=2.0, noise=0.0, vignette=0.0)
    assert (picture(0.5, hard) == 64).all()  # 255 x 0.5^2 = 63.75


def test_vignette_darkens_the_corners_by_its_amount() -> None:
    dark_corners = Camera("cheap", 90, height=1.5, gain=(1.0, 1.0, 1.0), gamma=1.0, noise=0.0, vignette=0.4)
    seen = picture(0.5, dark_corners, side=64)
    assert seen[32, 32, 0] == pytest.approx(127.5, abs=1)
    assert seen[0, 0, 0] == pytest.approx(127.5 * 0.6, abs=2)


def test_noise_has_the_camera_s_strength_and_doubles_at_night() -> None:
    noisy = Camera("noisy", 90, height=1.5, gain=(1.0, 1.0, 1.0), gamma=1.0, noise=6.0, vignette=0.0)
    assert picture(0.5, noisy, side=128).std() == pytest.approx(6, rel=0.05)
    assert picture(0.5, noisy, dark=1.0, side=128).std() == pytest.approx(12, rel=0.05)


def test_noise_follows_from_the_seed() -> None:
    noisy = Camera("noisy", 90, height=1.5, gain=(1.0, 1.0, 1.0), gamma=1.0, noise=6.0, vignette=0.0)
    light = np.full((3, 256), 0.5, np.float32)
    one, same, other = (develop(light.copy(), noisy, 0.0, height=16, width=16, seed=seed) for seed in (99, 99, 7 << 20))
    assert (one == same).all()
    assert (one != other).any()
