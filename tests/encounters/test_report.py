"""The report of a tour, over a made-up day on a grid of streets: numbers by hand, and a real browser for the map."""

from __future__ import annotations

import base64
import json
import math
import re
import zlib
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from browser import browse, painted
from wayfare.core.bundle import Bundle
from wayfare.core.errors import StoreError
from wayfare.encounters import report_figures as tour_figures
from wayfare.encounters.contacts import ListedContacts, LocatedContacts
from wayfare.encounters.movie import movie
from wayfare.encounters.movie_file import ABSENT, Movie
from wayfare.encounters.player import _changes, _packed, player
from wayfare.encounters.record import Exchanges, TourRecord
from wayfare.encounters.report import encounter_report
from wayfare.encounters.traces import Contacts, Traces
from wayfare.pages.compare import compare
from wayfare.pages.compare_page import write_page
from wayfare.pages.record import Record
from wayfare.pages.tables import compare_table, metric_spread, metric_words, result_row
from wayfare.report import write_report

SIZE = 1000  # bytes of a model


def write_run(folder: Path, lines: list[dict[str, Any]], ledger: dict[str, np.ndarray], data: bytes | None) -> Path:
    """A run folder as the topology leaves it."""
    (folder / "checkpoints").mkdir(parents=True)
    settings = 'name = "a day in town"\nseed = 0\nrounds = 0\n[task]\nname = "objects"\n[strategy]\nname = "fedavg"\n'
    settings += f'[topology]\nname = "encounters"\n[exchange]\nname = "{folder.name}"\nlimit = 40\n'
    (folder / "experiment.toml").write_text(settings, encoding="utf-8")
    file = f"checkpoints/{lines[-1]['round']:06d}.safetensors"
    columns = {name: torch.from_numpy(np.array(column)) for name, column in ledger.items()}
    (folder / file).write_bytes(Bundle({"columns": columns}, {"base_row": 0}).pack())
    lines[-1]["checkpoint"] = {"file": file}
    (folder / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    if data is not None:
        (folder / "tour.safetensors").write_bytes(data)
    return folder


def line(number: int, events: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"round": number, "seconds": 0.1, "metrics": {}, "events": events, "bytes_up": 0, "bytes_down": 0} | more


def judged(ids: list[str], accuracy: list[float], score: list[float], joules: float) -> dict[str, Any]:
    values = {"accuracy": dict(zip(ids, accuracy)), "score": dict(zip(ids, score))}
    values = {name: {i: v for i, v in of.items() if not math.isnan(v)} for name, of in values.items()}
    metrics = {"test/accuracy": float(np.mean(accuracy)), "test/accuracy_max": max(accuracy), "tour/joules": joules}
    return {"per_client": values, "metrics": metrics | {"tour/bytes_sent": 2.5e6, "tour/taken": 1.5}}


def located(positions: np.ndarray, still: np.ndarray) -> LocatedContacts:
    devices = tuple(f"d{i}" for i in range(positions.shape[1]))
    return LocatedContacts(
        Traces(
            devices,
            30.0,
            start=21_600.0,
            date="",
            positions=positions,
            stationary=still,
            origin=(0.0, 0.0),
            geographic=False,
        )
    )


def small(folder: Path, scored: bool = True) -> Path:
    """Three devices and a signage, four slots, three exchanges of which one does harm and one is not adopted."""
    ids = ["c0", "c1", "c2", "s0"]
    nan = math.nan
    scores = [0.2, 0.4, 0.6, 0.5] if scored else [nan] * 4
    known = [0.5, 0.3, 0.55] if scored else [None] * 3
    before = [0.2, 0.4, 0.5] if scored else [None] * 3
    column = {"predicted": [0.45, 0.5, 0.6] if scored else [None] * 3, "before": before, "after": known}
    part = {name: (values[:2], values[2:]) for name, values in column.items()}
    first = {"taker": ["c0", "c1"], "giver": ["c1", "c0"], "adopted": [True, True]}
    second = {"taker": ["c0"], "giver": ["s0"], "adopted": [False]}
    lines = [
        line(0, {}, **judged(ids, [0.1] * 4, [nan] * 4, 0.0)),
        line(1, {"devices": 4}, **judged(ids, [0.25, 0.35, 0.65, 0.55], scores, 0.0)),
        line(2, {"slot": 0, "contacts": 2, "met": 1}),
        line(3, {"slot": 1, "contacts": 3, "met": 1, "cut": 0, "failed": 0} | first
             | {name: values[0] for name, values in part.items()}, bytes_up=2 * SIZE, bytes_down=2 * SIZE),
        line(4, {"slot": 2, "contacts": 1, "met": 1, "cut": 2, "failed": 1}),
        line(5, {"slot": 3, "contacts": 2, "met": 1, "cut": 0, "failed": 0} | second
             | {name: values[1] for name, values in part.items()}, bytes_up=2 * SIZE, bytes_down=2 * SIZE,
             refused=[{"device": "c1", "to": "c0", "reason": "not finite"}],
             **judged(ids, [0.5, 0.3, 0.65, 0.55], [0.5, 0.3, 0.6, 0.5] if scored else [nan] * 4, 8.0)),
    ]  # fmt: skip
    counts = {"sent": [1, 1, 0, 1], "taken": [2, 1, 0, 0], "can_send": [0, 19, 20, 39], "can_take": [37, 19, 20, 0]}
    counts |= {"bytes_sent": [SIZE] * 4, "bytes_taken": [SIZE] * 4, "meetings": [3, 3, 0, 2]}
    ledger = {name: np.array(values, np.int64) for name, values in counts.items()} | {"joules": np.full(4, 8.0)}
    places = np.array([[[0, 0], [30, 0], [200, 90], [60, 40]]] * 4, np.float32)
    places[3, 2] = np.nan
    targets = np.array([[True, False], [True, False], [False, True], [True, True]])
    still = np.array([False, False, False, True])
    return write_run(folder, lines, ledger, movie(located(places, still), ids, targets))


def town_day(folder: Path, devices: int = 60, signs: int = 4, slots: int = 240, seed: int = 1) -> Path:
    """People on a grid of streets who come and go, and exchange models with whom they are near."""
    rng = np.random.default_rng(seed)
    everyone = devices + signs
    positions = np.full((slots, everyone, 2), np.nan, np.float32)
    place = rng.integers(0, 9, (everyone, 2)) * 120.0
    aim = place.copy()
    come, go = rng.integers(0, slots // 3, devices), slots - rng.integers(0, slots // 3, devices)
    for slot in range(slots):
        arrived = np.abs(place - aim).max(1) < 1
        aim[arrived] = place[arrived]
        axis, steps = rng.integers(0, 2, everyone), rng.choice([-120.0, 120.0], everyone)
        aim[arrived, axis[arrived]] = np.clip(aim[arrived, axis[arrived]] + steps[arrived], 0, 960)
        place[:devices] += np.clip(aim - place, -40, 40)[:devices]
        here = np.append((come <= slot) & (slot < go), np.ones(signs, bool))
        positions[slot, here] = (place + rng.normal(0, 3, place.shape))[here]
    still = np.arange(everyone) >= devices
    contacts = located(positions, still)
    ids = [f"c{i}" for i in range(devices)] + [f"s{i}" for i in range(signs)]
    score = np.clip(rng.gamma(2.2, 0.09, everyone) + 0.1, 0.1, 0.6)
    start, noise = score.copy(), rng.normal(0, 0.02, everyone)
    counts = {name: np.zeros(everyone, np.int64) for name in ("sent", "taken", "meetings")}
    lines = [
        line(0, {}, **judged(ids, [0.1] * everyone, [math.nan] * everyone, 0.0)),
        line(1, {"devices": everyone}, **judged(ids, (start + noise).tolist(), start.tolist(), 0.0)),
    ]
    for slot in range(slots):
        pairs, _ = contacts.at(slot)
        pairs = pairs[rng.permutation(len(pairs))]
        _, first = np.unique(pairs[:, 0], return_index=True)
        chosen = [p for p in pairs[first].tolist() if rng.random() < 0.1][:8]
        columns: dict[str, list[Any]] = {n: [] for n in ("taker", "giver", "predicted", "before", "after", "adopted")}
        busy: set[int] = set()
        for a, b in chosen:
            if busy & {a, b}:
                continue
            busy |= {a, b}
            me, peer = (a, b) if score[a] < score[b] else (b, a)
            guess = score[me] + 0.4 * (score[peer] - score[me]) + 0.02
            after = float(np.clip(guess + rng.normal(0, 0.03), 0.1, 0.75))
            adopted = after > score[me] - 0.02
            row = (ids[me], ids[peer], float(guess), float(score[me]), after, bool(adopted))
            for name, value in zip(columns, row):
                columns[name].append(round(value, 6) if isinstance(value, float) else value)
            score[me] = after if adopted else score[me]
            counts["taken"][me] += 1
            counts["sent"][peer] += 1
        np.add.at(counts["meetings"], pairs[first].reshape(-1), 1)
        size = len(columns["taker"])
        events = {"slot": slot, "contacts": len(pairs), "met": len(first), "cut": 0, "failed": 0} | (
            columns if size else {}
        )
        more = {"bytes_up": size * 4_000_000, "bytes_down": size * 4_000_000}
        if slot in (slots // 2, slots - 1):
            test = (score + rng.normal(0, 0.02, everyone)).tolist()
            more |= judged(ids, test, score.tolist(), float(counts["taken"].mean()) * 60)
        lines.append(line(slot + 2, events, **more))
    ledger = counts | {
        "can_send": 20 - np.minimum(20, counts["sent"]),
        "can_take": 20 - np.minimum(20, counts["taken"]),
    }
    ledger |= {"bytes_sent": counts["sent"] * 4_000_000, "bytes_taken": counts["taken"] * 4_000_000}
    ledger["joules"] = counts["taken"] * 60.0
    return write_run(folder, lines, ledger, movie(contacts, ids, np.ones((everyone, 10), bool)))


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return town_day(tmp_path_factory.mktemp("tours") / "fedtour")


def read(folder: Path) -> TourRecord:
    tour = TourRecord.read(Record.read(folder))
    assert tour is not None
    return tour


# Reading


def test_a_tour_is_read_back(tmp_path: Path) -> None:
    tour = read(small(tmp_path / "fedtour"))
    assert tour.ids == ("c0", "c1", "c2", "s0")
    assert tour.exchanges.slot.tolist() == [1, 1, 3]
    assert tour.exchanges.taker.tolist() == [0, 1, 0] and tour.exchanges.giver.tolist() == [1, 0, 3]
    assert tour.slots["contacts"].tolist() == [2, 3, 1, 2] and tour.slots["cut"].tolist() == [0, 0, 2, 0]
    assert tour.slots["bytes"].tolist() == [0, 2 * SIZE, 0, 2 * SIZE]
    assert tour.initial is not None and tour.final is not None
    assert [one.slot for one in tour.judged] == [-1, 3]  # the untrained model is not one of a device
    assert tour.initial.values["accuracy"].tolist() == [0.25, 0.35, 0.65, 0.55]
    assert tour.columns["meetings"].tolist() == [3, 3, 0, 2]


def test_gain_harm_and_regret_by_hand(tmp_path: Path) -> None:
    """+0.3 adopted; -0.1 adopted, which is harm and a regret of 0.1; +0.05 left, which is a regret of 0.05."""
    exchanges = read(small(tmp_path / "fedtour")).exchanges
    assert exchanges.gain == pytest.approx([0.3, -0.1, 0.05])
    assert exchanges.harmful.tolist() == [False, True, False]
    assert exchanges.regret == pytest.approx([0, 0.1, 0.05])


def test_the_mean_score_follows_what_is_adopted(tmp_path: Path) -> None:
    """Four devices begin at 0.425 in the mean; +0.3, then -0.1, and the last merge is not adopted."""
    tour = read(small(tmp_path / "fedtour"))
    assert tour.scores == pytest.approx([0.2, 0.4, 0.6, 0.5])
    assert tour.mean_score == pytest.approx([0.5, 0.475, 0.475])


def test_without_scores_nothing_is_made_up(tmp_path: Path) -> None:
    tour = read(small(tmp_path / "gossip", scored=False))
    assert np.isnan(tour.scores).all() and np.isnan(tour.mean_score).all() and np.isnan(tour.exchanges.regret).all()
    part = encounter_report(Record.read(tmp_path / "gossip"))
    assert part is not None and not part.measured
    text = words(write_report(tmp_path / "gossip"))
    assert "does not measure whether a merge helps" in text and "regret" not in text


def test_the_initial_models_are_those_at_the_end_of_the_beginning(tmp_path: Path) -> None:
    """Where the beginning takes several rounds, some of which are judged as well."""
    folder = small(tmp_path / "fedtour")
    lines = [json.loads(text) for text in (folder / "rounds.jsonl").read_text().splitlines()]
    early = lines[1] | {"per_client": {"accuracy": {"c0": 0.01}}}
    for number, entry in enumerate([lines[0], early, *lines[1:]]):
        entry["round"] = number
    text = "".join(json.dumps(entry) + "\n" for entry in [lines[0], early, *lines[1:]])
    (folder / "rounds.jsonl").write_text(text)
    tour = read(folder)
    assert tour.initial is not None and tour.initial.values["accuracy"][0] == 0.25


def test_a_run_with_a_server_is_no_tour(tmp_path: Path) -> None:
    folder = small(tmp_path / "fedtour")
    text = (folder / "experiment.toml").read_text().replace("encounters", "server")
    (folder / "experiment.toml").write_text(text)
    assert TourRecord.read(Record.read(folder)) is None and encounter_report(Record.read(folder)) is None


def test_the_report_works_without_movie_and_checkpoint(tmp_path: Path) -> None:
    folder = small(tmp_path / "fedtour")
    (folder / "tour.safetensors").unlink()
    for file in (folder / "checkpoints").iterdir():
        file.unlink()
    tour = read(folder)
    assert tour.ids == ("c0", "c1", "c2", "s0") and tour.movie is None and tour.columns == {}
    part = encounter_report(Record.read(folder))
    assert part is not None and part.player is None
    assert "No movie of this tour" in words(write_report(folder))


@pytest.mark.parametrize(
    ("events", "complaint"),
    [
        ({"slot": 1, "taker": ["c0"], "giver": []}, "columns of its exchanges differ in length"),
        ({"slot": 1, "contacts": "many"}, "'contacts': expected a number"),
        (["slot"], "field 'events': expected an object"),
        (
            {
                "slot": 1,
                "taker": ["c9"],
                "giver": ["c0"],
                "predicted": [0],
                "before": [0],
                "after": [0],
                "adopted": [1],
            },
            "no device 'c9'",
        ),
    ],
)
def test_a_line_that_cannot_be_understood_is_named(tmp_path: Path, events: Any, complaint: str) -> None:
    folder = small(tmp_path / "fedtour")
    with (folder / "rounds.jsonl").open("a") as file:
        file.write(json.dumps(line(6, events)) + "\n")
    with pytest.raises(StoreError, match=rf"rounds\.jsonl:7: .*{complaint}"):
        TourRecord.read(Record.read(folder))


def test_a_damaged_movie_is_named(tmp_path: Path) -> None:
    folder = small(tmp_path / "fedtour")
    (folder / "tour.safetensors").write_bytes(b"\x00" * 40)
    with pytest.raises(StoreError, match=r"tour\.safetensors: not a file that Wayfare wrote"):
        TourRecord.read(Record.read(folder))


def test_another_file_is_not_a_movie(tmp_path: Path) -> None:
    file = small(tmp_path / "fedtour") / "tour.safetensors"
    good = Bundle.unpack(file.read_bytes())
    for bundle, complaint in (
        (Bundle({"model": {}}), "not the movie of a tour"),
        (Bundle({}, good.values), "expected positions, slots, stationary, targets"),
        (Bundle(good.tensors, good.values | {"ids": '["c0"]'}), "differ in length"),
        (Bundle(good.tensors, good.values | {"step": "long"}), "could not convert"),
    ):
        file.write_bytes(bundle.pack())
        with pytest.raises(StoreError, match=rf"tour\.safetensors: .*{complaint}"):
            Movie.read(file)


# Figures


def test_accuracies_are_counted_in_bins_of_five_points() -> None:
    before, after = np.array([0.10, 0.12, 0.15, 0.31]), np.array([0.40, 0.449, np.nan, 0.45])
    figure = tour_figures.distribution_figure("f", "accuracy", before, after)
    assert figure is not None
    first, second = figure.spec["data"]
    assert first["x"] == pytest.approx(np.arange(0.125, 0.5, 0.05))
    assert first["y"] == [2, 1, 0, 0, 1, 0, 0, 0] and second["y"] == [0, 0, 0, 0, 0, 0, 2, 1]
    assert tour_figures.distribution_figure("f", "accuracy", None, None) is None


def test_the_mean_accuracy_over_time_exchanges_bytes_and_energy(tmp_path: Path) -> None:
    figure = tour_figures.progress_figure(read(small(tmp_path / "fedtour")))
    assert figure is not None
    probe, test = figure.spec["data"]
    assert probe["y"] == pytest.approx([0.425, 0.475, 0.475]) and test["y"] == pytest.approx([0.45, 0.5])
    over = {name: of["x"] for name, of in figure.spec["over"].items()}
    # the first point is before slot 0, at six; then the ends of slots 1 and 3, of half a minute each
    assert over["time"][0] == pytest.approx([6, 6 + 1 / 60, 6 + 2 / 60]) and over["time"][1] == over["time"][0][::2]
    assert over["exchanges"][0] == pytest.approx([0, 0.5, 0.75])
    assert over["bytes"][0] == pytest.approx([0, 0.5, 1.0])  # kB per device
    assert figure.spec["over"]["bytes"]["title"] == "sent per device, kB"
    assert over["joules"][0] == pytest.approx([0, 4, 8])  # 8 J are known at the end; half of the bytes, half of it


def test_the_matrix_of_the_busiest_is_the_mean_gain(tmp_path: Path) -> None:
    figure = tour_figures.teacher_figures(read(small(tmp_path / "fedtour")))[-1]
    [trace] = figure.spec["data"]
    assert figure.spec["layout"]["yaxis"]["ticktext"] == ["c0", "c1", "s0"]
    assert figure.spec["layout"]["xaxis"]["ticktext"] == ["c0", "c1"]
    np.testing.assert_allclose(trace["z"], [[np.nan, -0.1], [0.3, np.nan], [0.05, np.nan]], atol=1e-9)
    assert trace["text"][1][0] == "c1 sent c0 1 models, +30.0 points each"


def test_the_forecast_knows_harm(tmp_path: Path) -> None:
    tour = read(small(tmp_path / "fedtour"))
    figure = tour_figures.forecast_figure(tour.exchanges)
    assert figure is not None and [key.name for key in figure.keys] == ["gain", "harm", "not adopted"]
    assert [trace["x"] for trace in figure.spec["data"]] == [pytest.approx([v]) for v in (0.25, 0.1, 0.1)]
    unknown = np.full(3, np.nan)
    assert tour_figures.forecast_figure(replace(tour.exchanges, predicted=unknown)) is None


def test_contacts_of_a_long_day_are_put_together(tmp_path: Path) -> None:
    tour = read(small(tmp_path / "fedtour"))
    slots = {name: np.full(1440, 6) for name in ("contacts", "met", "cut", "failed", "bytes")}
    none = Exchanges(*(np.empty(0, np.int64) for _ in range(6)), np.empty(0, bool))
    long = replace(tour, slots=slots | {"slot": np.arange(1440), "slots": np.ones(1440, int)}, exchanges=none)
    pairs, exchanged = tour_figures.contact_figures(long)
    assert len(pairs.spec["data"][0]["y"]) == 180 and set(pairs.spec["data"][0]["y"]) == {6.0}
    assert [key.name for key in exchanged.keys] == ["adopted", "contact too short"]


def test_figures_are_what_plotly_understands(day: Path, tmp_path: Path) -> None:
    graph_objects = pytest.importorskip("plotly.graph_objects")

    for folder in (day, small(tmp_path / "gossip", scored=False)):
        part = encounter_report(Record.read(folder))
        assert part is not None and len(part.figures) >= 6
        for figure in part.figures:
            graph_objects.Figure(data=painted(figure.spec["data"]), layout=painted(figure.spec["layout"]))


# The page


class Text(HTMLParser):
    """What stands in the page, beside its scripts and styles."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.inside = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.inside = tag

    def handle_data(self, data: str) -> None:
        if self.inside not in ("script", "style"):
            self.found.append(data)


def words(page: Path) -> str:
    """The text of a page, with one blank between words."""
    return " ".join(" ".join(Text(page.read_text(encoding="utf-8")).found).split())


def test_the_report_says_it_in_numbers(tmp_path: Path) -> None:
    page = write_report(small(tmp_path / "fedtour"))
    text = words(page)
    for said in (
        "4 devices, 1 of them signage, learnt the objects task, then met for 4 slots under fedtour: 4 meetings, "
        "in which 3 models were taken.",
        "Their mean accuracy on the test set went from 45.00 % to 50.00 %.",
        "4 kB travelled",  # what one sends is what the other takes: counted once
        "from device to device",
        "adopted merges that lowered accuracy 50.0 %",
        "gain of an adopted merge, mean 10.00 points",
        "regret per exchange, mean 5.00 points",
        "prediction error, mean 10.00 points",  # 0.05, 0.2 and 0.05
        "models refused at the gate 1",
        "exchanges cut by the end of a contact 2",
        "met nobody 1 devices, 25.0 %",
        "devices with nothing left to send 25.0 %",
        "budget per device, median 40",
        "energy per device, mean 8 J",
    ):
        assert said in text, said
    assert "to the server" not in text and "of 0" not in text
    assert not re.search(
        r"(src|href)=\"(?!#|data:)", page.read_text(encoding="utf-8").split("<main")[1].split("<script")[0]
    )


def test_devices_are_grouped_by_interest(tmp_path: Path) -> None:
    """Devices 0 and 1 care about the first class; their accuracy on it is the mean of the two."""
    folder = small(tmp_path / "fedtour")
    lines = [json.loads(text) for text in (folder / "rounds.jsonl").read_text().splitlines()]
    for entry, values in ((lines[1], [0.1, 0.3, 0.5, 0.5]), (lines[-1], [0.5, 0.7, 0.5, 0.5])):
        entry["per_client"]["target_accuracy"] = dict(zip(["c0", "c1", "c2", "s0"], values))
    (folder / "rounds.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in lines))
    (folder / "partition.json").write_text(json.dumps({"classes": ["church", "<b>bridge</b>"]}))
    part = encounter_report(Record.read(folder))
    assert part is not None and "interests" in part.names
    text = words(write_report(folder))
    assert "church 2 20.00 % 60.00 % 1.5" in text and "church, <b>bridge</b> 1" in text


def test_the_player_keeps_every_place(day: Path) -> None:
    """What is packed for the script is what the movie has."""
    tour = read(day)
    assert tour.movie is not None
    packed = np.frombuffer(zlib.decompress(base64.b64decode(_packed(_changes(tour.movie.positions)))), np.uint8)
    low, high = packed.reshape(2, -1).astype(np.uint16)
    change = (low + 256 * high).reshape(len(tour.ids), 2, len(tour.movie.slots))
    again = np.cumsum(change, axis=2, dtype=np.uint16).view(np.int16).transpose(2, 0, 1)
    assert (again == tour.movie.positions).all() and (again == ABSENT).any()


def test_the_page_of_the_papers_scale_stays_small(tmp_path: Path) -> None:
    """1,900 devices that walk at random all day, with 40 exchanges each."""
    rng = np.random.default_rng(0)
    devices, exchanges = 1900, 38_000
    walks = rng.normal(0, 40, (360, devices, 2)).cumsum(axis=0)
    positions = np.clip(walks, -16_000, 16_000).astype(np.int16)
    everyone = np.zeros(devices, bool), np.ones((devices, 10), bool)
    made = Movie(
        tuple(f"c{i}" for i in range(devices)), positions, np.arange(0, 1440, 4), *everyone, 0.5, 30.0, 0.0, 1440, True
    )
    some = rng.integers(0, devices, (2, exchanges))
    values = rng.random((3, exchanges))
    took = Exchanges(np.sort(rng.integers(0, 1440, exchanges)), *some, *values, rng.random(exchanges) < 0.9)
    tour = replace(read(small(tmp_path / "fedtour")), ids=made.ids, movie=made, exchanges=took, judged=())
    found = player(tour)
    assert found is not None and len(json.dumps(found.data)) < 3_100_000  # the drawing library takes 4.8 of 8 MB


def test_a_crowd_is_thinned_but_for_its_signage(tmp_path: Path) -> None:
    count = 5000
    still = np.zeros(count, bool)
    still[-3:] = True
    positions = np.zeros((2, count, 2), np.int16)
    ids = tuple(f"d{i}" for i in range(count))
    made = Movie(
        ids,
        positions,
        slots=np.array([0, 1]),
        stationary=still,
        targets=np.ones((count, 2), bool),
        step=0.5,
        slot=30.0,
        start=0.0,
        length=2,
        located=True,
    )
    none = Exchanges(*(np.empty(0, np.int64) for _ in range(6)), np.empty(0, bool))
    found = player(replace(read(small(tmp_path / "fedtour")), ids=ids, movie=made, exchanges=none, judged=()))
    assert found is not None
    data = found.data
    assert len(data["ids"]) == 4000 and [data["ids"][i] for i in data["still"]] == ["d4997", "d4998", "d4999"]
    assert "4,000 of 5,000 devices are shown" in found.note


# Side by side


def test_tours_compare_by_what_their_metrics_are_called(tmp_path: Path) -> None:
    for name in ("fedtour", "gossip"):
        small(tmp_path / name, scored=name == "fedtour")
    comparison = compare([tmp_path / "fedtour", tmp_path / "gossip"])
    named = ("test/accuracy", "test/accuracy_max", "tour/taken", "tour/joules", "tour/bytes_sent")
    assert comparison.metrics == named
    assert comparison.best("tour/joules") is None  # more or less of it is neither good nor bad
    page = write_page(comparison, tmp_path / "page.html")
    text = words(page)
    for said in ("models taken per device", "energy per device, J", "sent per device", "2.5 MB", "4 kB"):
        assert said in text, said
    assert "sent from device to device, kB" in page.read_text(encoding="utf-8")
    heads = [str(column.header) for column in compare_table(comparison).columns]
    assert heads[2:5] == ["test/accuracy", "test/accuracy_max", "models taken per device"]


def test_metrics_of_a_spread_come_after_its_middle(tmp_path: Path) -> None:
    folder = small(tmp_path / "fedtour")
    lines = [json.loads(text) for text in (folder / "rounds.jsonl").read_text().splitlines()]
    names = ("test/accuracy_min", "test/accuracy_p10", "test/accuracy_median", "tour/lonely", "train/loss")
    lines[-1]["metrics"] |= dict.fromkeys(names, 0.5)
    (folder / "rounds.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in lines))
    record = Record.read(folder)
    assert record.metrics == (
        "test/accuracy", "test/accuracy_max", "test/accuracy_median", "tour/taken", "tour/joules", "tour/bytes_sent",
        "tour/lonely", "test/accuracy_min", "test/accuracy_p10", "train/loss",
    )  # fmt: skip
    assert result_row(record, "tour/bytes_sent") == ("sent per device", "2.5 MB", "–", "–", "2.5 MB")
    spread = compare([folder]).groups[0].metric("tour/bytes_sent")
    assert metric_spread("tour/bytes_sent", spread) == "2.5 MB" and metric_words("test/accuracy") == "test/accuracy"


# In a browser


def map_alone(folder: Path, page: Path) -> Path:
    """A page whose figures are not drawn, which opens sooner."""
    text = write_report(folder, page).read_text(encoding="utf-8")
    plotly, figures, _ = re.findall(r"<script>.*?</script>", text, re.DOTALL)
    page.write_text(text.replace(plotly, "").replace(figures, ""), encoding="utf-8")
    return page


def test_the_map_is_ready_under_the_pages_own_policy(day: Path, tmp_path: Path) -> None:
    page = write_report(day, tmp_path / "page.html")
    dom, said = browse(page, tmp_path, "--window-size=400,800")
    assert said == []
    assert 'data-ready="64"' in dom and 'data-at="0"' in dom and ">06:00</output>" in dom


def test_the_day_plays_and_keys_move_it(day: Path, tmp_path: Path) -> None:
    """By a script that presses play and keys; the page's own policy would not let it run, so the copy has none.

    A browser without a screen paints when it likes, so there frames come from its clock.
    """
    tour = read(day)
    text = map_alone(day, tmp_path / "page.html").read_text(encoding="utf-8")
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text, count=1)
    press = """
    const root = document.getElementById("tour"), note = (name) => { root.dataset[name] = root.dataset.at; };
    const said = (name) => { root.dataset[name] = document.getElementById("tour-now").textContent; };
    const key = (key, shiftKey) => document.getElementById("tour-map").dispatchEvent(
      new KeyboardEvent("keydown", { key, shiftKey, bubbles: true }));
    const wait = (ms) => new Promise((done) => setTimeout(done, ms));
    (async () => {
      while (!root.dataset.ready) await wait(20);
      key(" "); await wait(800); key(" "); await wait(100); note("played"); await wait(300); note("paused");
      key("Home"); await wait(100); key("ArrowRight"); await wait(100); note("minute");
      key("ArrowRight", true); await wait(100); note("ten");
      key("End"); await wait(100); note("last"); said("finally");
      key("Home"); await wait(100); said("first");
    })();
    """
    copy = tmp_path / "pressed.html"
    frames = "window.requestAnimationFrame = (paint) => setTimeout(() => paint(performance.now()), 16)"
    text = text.replace("<head>", f"<head><script>{frames}</script>", 1)
    copy.write_text(text.replace("</body>", f"<script>{press}</script></body>"), encoding="utf-8")
    dom, complaints = browse(copy, tmp_path, "--window-size=1400,900")
    assert complaints == []
    found = dict(re.findall(r'data-(\w+)="([^"]*)"', re.search(r'<div id="tour"[^>]*>', dom).group()))  # type: ignore[union-attr]
    assert 0 < int(found["played"]) < 239 and found["paused"] == found["played"]
    assert (found["minute"], found["ten"], found["last"]) == ("2", "22", "239")  # slots of half a minute
    assert f"{len(tour.exchanges)} models taken · mean {100 * tour.mean_score[-1]:.1f} %" in found["finally"]
    assert "0 models taken" in found["first"]


def test_contacts_without_places_play_on_a_circle(tmp_path: Path) -> None:
    folder = small(tmp_path / "fedtour")
    contacts = Contacts(("a", "b", "c", "d"), 30.0, 0.0, np.array([0, 3]), np.array([[0, 1], [2, 3]]))
    made = movie(ListedContacts(contacts), ["c0", "c1", "c2", "s0"], np.ones((4, 2), bool))
    (folder / "tour.safetensors").write_bytes(made)
    page = map_alone(folder, tmp_path / "page.html")
    assert "not where: devices are drawn on a circle" in page.read_text(encoding="utf-8")
    dom, said = browse(page, tmp_path)
    assert said == [] and 'data-ready="4"' in dom
