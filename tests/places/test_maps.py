"""Maps of what is frozen: they are what the network makes of the pictures, the same bytes whoever makes them."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch

from place_pictures import picture, write_picture
from wayfare.core.bundle import digest
from wayfare.core.errors import DataError
from wayfare.io.decoded import Decoded, decoded
from wayfare.places import feature_maps as module
from wayfare.places.backbones import SmallCnnBackbone
from wayfare.places.descriptor import Descriptor
from wayfare.places.feature_maps import FeatureMaps, pictures
from wayfare.places.model import PlaceModel

COUNT = 65  # two parts of 32, and one photograph alone
GIB = 2.0**30


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("photos")
    for place in range(COUNT):
        write_picture(root / f"{place:02}.png", place)
    return root


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WAYFARE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def read(folder: Path, room: float = GIB) -> Decoded:
    return decoded(folder, sorted(folder.glob("*.png")), (32, 32), room)


def network(seed: int = 0, train: str = "block3", width: int = 4) -> Descriptor:
    torch.manual_seed(seed)
    return PlaceModel(SmallCnnBackbone(width), train=train).network().eval()


def files(own_cache: Path) -> list[Path]:
    return sorted((own_cache / "maps").glob("*/maps.npy"))


def everything(images: Decoded) -> np.ndarray:
    return np.arange(len(images))


def test_maps_are_what_the_frozen_layers_make_of_the_pictures(folder: Path, own_cache: Path) -> None:
    net, images = network(), read(folder)
    kept = FeatureMaps(net, images, GIB)(net, everything(images))
    # two convolutions with stride 2 and two halvings: 32 -> 16 -> 8 -> 4; 2 * 4 channels
    assert kept.shape == (COUNT, 8, 4, 4) and kept.is_contiguous(memory_format=torch.channels_last)
    shown = torch.from_numpy(np.stack([picture(place) for place in range(COUNT)])).permute(0, 3, 1, 2).double() / 255
    exact = network().double().trunk(shown)
    # a few hundred products are added up for each number: a hundred roundings of the largest are more than enough
    bound = 100 * 2.0**-24 * float(exact.abs().max())
    assert float((kept.double() - exact).abs().max()) < bound
    assert float(exact.std()) > 1000 * bound
    assert len(files(own_cache)) == 1


def test_rows_in_any_order_and_more_than_once(folder: Path) -> None:
    net, images = network(), read(folder)
    maps = FeatureMaps(net, images, GIB)
    whole, rows = maps(net, everything(images)), np.array([64, 3, 3, 40])
    assert torch.equal(maps(net, rows), whole[rows])
    assert maps(net, np.arange(0)).shape == (0, 8, 4, 4)


@pytest.mark.parametrize("train", ["block3", "head", "all"])
def test_what_does_not_fit_has_the_same_bits(folder: Path, own_cache: Path, train: str) -> None:
    net, images, streamed = network(train=train), read(folder), read(folder, room=0)
    kept, made = FeatureMaps(net, images, GIB), FeatureMaps(net, streamed, 0)
    assert streamed.rows is None and len(files(own_cache)) == (train != "all")
    for rows in (everything(images), np.array([64]), np.array([5]), np.array([9, 64, 9]), np.arange(20, 40)):
        assert torch.equal(kept(net, rows), made(net, rows))


def test_the_room_is_counted_in_bytes(folder: Path, own_cache: Path) -> None:
    net, images = network(), read(folder)
    exactly = 4 * COUNT * 8 * 4 * 4
    FeatureMaps(net, images, exactly - 1)
    assert not files(own_cache)
    FeatureMaps(net, images, exactly)
    assert len(files(own_cache)) == 1


def test_the_same_bytes_with_any_number_of_threads(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = []
    for threads, cores in ((1, 1), (2, 2), (1, 5)):
        torch.set_num_threads(threads)
        monkeypatch.setenv("WAYFARE_CACHE", str(tmp_path / f"{threads}-{cores}"))
        monkeypatch.setattr(os, "cpu_count", lambda cores=cores: cores)
        FeatureMaps(network(), read(folder), GIB)
        with ThreadPoolExecutor(1) as another:  # it leaves the number of threads as it was, here and elsewhere
            assert torch.get_num_threads() == another.submit(torch.get_num_threads).result() == threads
        made.append(files(tmp_path / f"{threads}-{cores}")[0].read_bytes())
    assert made[0] == made[1] == made[2]


def test_the_second_time_nothing_is_computed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, int]] = []
    first = FeatureMaps(network(), read(folder), GIB, lambda done, total: seen.append((done, total)))
    assert seen == [(32, 65), (64, 65), (65, 65)]
    monkeypatch.setattr(module, "_computed", lambda *_: pytest.fail("computed again"))
    net = network()
    assert torch.equal(FeatureMaps(net, read(folder), GIB)(net, np.arange(9)), first(net, np.arange(9)))


def test_a_photograph_that_changes_gets_another_map(folder: Path, own_cache: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    for place in range(5):
        write_picture(copy / f"{place:02}.png", place)
    net, rows = network(), np.arange(5)
    before = FeatureMaps(net, read(copy), GIB)(net, rows)
    write_picture(copy / "03.png", 333)
    os.utime(copy / "03.png", ns=(0, 12345))
    after = FeatureMaps(net, read(copy), GIB)(net, rows)
    assert [torch.equal(a, b) for a, b in zip(before, after)] == [True, True, True, False, True]
    assert len(files(own_cache)) == 2


def test_other_frozen_weights_have_other_maps(folder: Path, own_cache: Path) -> None:
    images, rows = read(folder), np.arange(4)
    nets = [network(0), network(1), network(0, train="block2"), network(0, train="head")]
    made = [FeatureMaps(net, images, GIB)(net, rows) for net in nets]
    assert len(files(own_cache)) == 4 and not torch.equal(made[0], made[1])
    for net, maps in zip(nets, made):
        assert torch.equal(maps, net.trunk(pictures(images, rows, torch.device("cpu"))))


def test_other_trained_weights_have_the_same_maps(folder: Path, own_cache: Path) -> None:
    images, net = read(folder), network()
    before = digest(dict(net.state_dict()))
    FeatureMaps(net, images, GIB)
    with torch.no_grad():
        for parameter in net.parameters():
            if parameter.requires_grad:
                parameter.add_(1)
    assert digest(dict(net.state_dict())) != before
    FeatureMaps(net, images, GIB)
    assert len(files(own_cache)) == 1


@pytest.mark.parametrize("damage", ["gone", "empty", "short", "header", "fewer", "wider"])
def test_damaged_maps_are_made_again(folder: Path, own_cache: Path, damage: str) -> None:
    images = read(folder)
    FeatureMaps(network(), images, GIB)
    (path,) = files(own_cache)
    content = path.read_bytes()
    path.unlink()
    if damage in ("fewer", "wider"):
        np.save(path, np.zeros((COUNT - 1, 4, 4, 8), np.float32) if damage == "fewer" else np.zeros((COUNT, 4, 4, 8)))
    elif damage != "gone":
        path.write_bytes({"empty": b"", "short": content[:-100], "header": b"PK" + content[2:]}[damage])
    FeatureMaps(network(), images, GIB)
    assert path.read_bytes() == content


def test_a_cache_that_cannot_be_written(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = read(folder)
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("WAYFARE_CACHE", str(tmp_path / "file"))
    with pytest.raises(DataError, match="set WAYFARE_CACHE"):
        FeatureMaps(network(), images, GIB)


def test_a_full_disk_says_what_to_do(folder: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images, tries = read(folder), []

    def full(net: Descriptor, images: Decoded) -> list[np.ndarray]:
        tries.append(1)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "_computed", full)
    with pytest.raises(
        DataError, match=r"maps\.npy: cannot be written: No space left.*WAYFARE_CACHE, or lower data.cache"
    ):
        FeatureMaps(network(), images, GIB)
    assert len(tries) == 1 and not files(own_cache)


def test_a_photograph_that_cannot_be_read_leaves_no_half_of_the_maps(own_cache: Path, tmp_path: Path) -> None:
    for place in range(3):
        write_picture(tmp_path / "some" / f"{place}.png", place)
    (tmp_path / "some" / "2.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    with pytest.raises(DataError, match=r"2\.png: truncated or damaged"):
        FeatureMaps(network(), read(tmp_path / "some", room=0), GIB)  # not looked through beforehand
    assert not files(own_cache) and not list(own_cache.rglob("*.part"))
    # maps of the two that can be read have the same key: with another number of photographs they are not taken
    FeatureMaps(network(), read(tmp_path / "some"), GIB)
    with pytest.raises(DataError, match=r"2\.png: truncated or damaged"):
        FeatureMaps(network(), read(tmp_path / "some", room=0), GIB)


def test_two_at_once_get_the_same(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes that share a cache are the same to it: a lock on a file that each has opened."""
    images, calls, real = read(folder), [], module._write

    def counted(*rest: object) -> None:
        calls.append(1)
        real(*rest)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "_write", counted)
    net, rows = network(), everything(images)
    with ThreadPoolExecutor(2) as two:
        one, other = two.map(lambda _: FeatureMaps(net, images, GIB)(net, rows), range(2))
    assert torch.equal(one, other) and len(calls) == 1
