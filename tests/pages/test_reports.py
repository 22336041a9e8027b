"""The reports, over made-up run folders that look like real ones: numbers by hand, hostile names, a real browser."""

from __future__ import annotations

import io
import json
import math
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from browser import browse, painted
from wayfare.core.errors import DataError, StoreError
from wayfare.pages import figures, tables
from wayfare.pages.compare import Comparison, Spread, compare
from wayfare.pages.compare_page import write_page
from wayfare.pages.record import Record, find_runs, less_is_better
from wayfare.pages.run_files import PerClient
from wayfare.report import write_report

HOSTILE = (
    "<img src=x onerror=alert(1)>",
    "</script><script>document.title='pwned'</script>",
    '"><svg onload=alert(1)>',
    "<a href='javascript:alert(1)'>x</a>",
    "%{x} <b>bold</b> &lt;i&gt; [red]red[/red] \x1b[31m \u202e",
)
START = datetime(2026, 5, 4, 9, 30, tzinfo=UTC)


def toml(experiment: dict[str, Any]) -> str:
    """Just enough TOML for an experiment."""
    single = [f"{key} = {json.dumps(value)}" for key, value in experiment.items() if not isinstance(value, dict)]
    for name, part in experiment.items():
        if isinstance(part, dict):
            single += ["", f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in part.items())]
    return "\n".join(single) + "\n"


def experiment(**changes: Any) -> dict[str, Any]:
    """A resolved experiment; `strategy__mu=0.1` sets a key of a table."""
    settings: dict[str, Any] = {
        "name": "digits, two labels each",
        "seed": 0,
        "rounds": 30,
        "task": {"name": "objects", "data": "digits", "network": "cnn"},
        "partition": {"name": "shards", "clients": 20, "classes_per_client": 2},
        "strategy": {"name": "fedprox", "mu": 0.1},
        "topology": {"name": "server", "clients_per_round": 5},
        "training": {"epochs": 1, "batch_size": 32, "learning_rate": 0.05, "clip": 5.0},
        "evaluation": {"every": 2, "per_client": True},
        "policy": {"quorum": 0.5, "deadline": 60.0, "max_norm": 100.0},
    }
    for key, value in changes.items():
        table, _, field = key.partition("__")
        if field:
            settings[table] = settings[table] | {field: value}
        else:
            settings[table] = value
    return settings


def round_lines(rounds: int, seed: int = 0, clients: int = 20, top: float = 0.93) -> list[dict[str, Any]]:
    """A plausible training: evaluated every second round, with a refusal, a cold device and a void round."""
    rng = np.random.default_rng(seed)
    lines = []
    for r in range(rounds + 1):
        reached = 0.1 + (top - 0.1) * (1 - math.exp(-r / 7)) + float(rng.normal(0, 0.008))
        asked = sorted(f"c{i}" for i in rng.choice(clients, size=min(5, clients), replace=False))
        line: dict[str, Any] = {
            "round": r,
            "time": (START + timedelta(seconds=4 * r)).isoformat().replace("+00:00", "Z"),
            "seconds": 0.0 if r == 0 else 1.1 + float(rng.random()) / 4,
            "metrics": {"train/loss": 2.3 * math.exp(-r / 8) + 0.1} if r else {},
            "clients": asked if r else [],
            "examples": 1200 if r else 0,
            "bytes_up": 5 * 68_420 if r else 0,
            "bytes_down": 5 * 68_420 + 900 if r else 0,
            "refused": [],
            "cold": [],
            "void": False,
            "model_sha256": f"{r:064x}",
        }
        if r % 2 == 0:
            line["metrics"] |= {
                "test/accuracy": reached,
                "test/loss": 2.4 * (1 - reached),
                "validation/accuracy": reached - 0.02,
            }
            spread = np.clip(rng.normal(reached, 0.06, clients), 0, 1)
            line["metrics"]["clients/accuracy"] = float(spread.mean())
            line["per_client"] = {"accuracy": {f"c{i}": float(v) for i, v in enumerate(spread)}}
        lines.append(line)
    if rounds >= 12:
        lines[5]["refused"] = [{"device": "c3", "reason": "not finite: model/conv1.weight"}]
        lines[9]["refused"] = [
            {"device": "c3", "reason": "not finite: model/conv2.bias"},
            {"device": "c11", "reason": "norm 812.4 is above 100: model"},
        ]
        lines[7]["cold"] = ["c1"]
        lines[11]["void"] = True
    return lines


def partition(clients: int = 20, classes: int = 10, names: list[str] | None = None) -> dict[str, Any]:
    counts = np.random.default_rng(1).dirichlet([0.4] * classes, size=clients)
    counts = (counts * 90).round().astype(int)
    sizes = counts.sum(axis=1)
    return {
        "provenance": {"data": "digits", "sha256": "ab12" * 16, "seed": 7},
        "classes": names or [str(i) for i in range(classes)],
        "counts": counts[:200].tolist(),
        "ids": [f"c{i}" for i in range(min(clients, 200))],
        "table": {
            "clients": clients,
            "samples": int(sizes.sum()),
            "mean": float(sizes.mean()),
            "sd": float(sizes.std(ddof=1)),
            "min": int(sizes.min()),
            "max": int(sizes.max()),
            "entropy": 1.21,
            "total_variation": 0.53,
            "largest_share": 0.48,
        },
    }


ENVIRONMENT = {
    "wayfare": "0.1.0",
    "python": "3.11.7",
    "torch": "2.13.0",
    "cores": 2,
    "device": "cpu",
    "engine": "pool",
    "workers": 2,
    "platform": "Linux x86_64",
}


def make_run(
    folder: Path,
    settings: dict[str, Any] | None = None,
    lines: list[dict[str, Any]] | None = None,
    finished: bool = True,
    parts: dict[str, Any] | None = None,
) -> Path:
    """A run folder as a run would leave it."""
    folder.mkdir(parents=True)
    settings = settings or experiment()
    lines = round_lines(settings["rounds"], settings["seed"]) if lines is None else lines
    (folder / "experiment.toml").write_text(toml(settings), encoding="utf-8")
    (folder / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    files = {"partition": partition(), "environment": ENVIRONMENT} | (parts or {})
    if finished:
        files.setdefault("summary", summary(lines))
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
    return folder


def summary(lines: list[dict[str, Any]]) -> dict[str, Any]:
    final: dict[str, float] = {}
    for line in lines:
        final |= line["metrics"]
    return {
        "run": "a run",
        "rounds": lines[-1]["round"],
        "metrics": final,
        "model_sha256": lines[-1]["model_sha256"],
        "seconds": sum(line["seconds"] for line in lines),
        "bytes_up": sum(line["bytes_up"] for line in lines),
        "bytes_down": sum(line["bytes_down"] for line in lines),
        "refused": sum(len(line["refused"]) for line in lines),
        "cold": sum(len(line["cold"]) for line in lines),
        "skipped_files": [{"file": "photos/IMG_0031.jpg", "reason": "truncated"}],
    }


def metric_line(number: int, value: float | None, sent: int = 0) -> dict[str, Any]:
    metrics = {} if value is None else {"test/accuracy": value}
    line = {"round": number, "seconds": 1.0, "metrics": metrics, "bytes_up": sent, "bytes_down": 0}
    return line | {"refused": [], "cold": [], "model_sha256": f"{number:064x}"}


def shown(table: Any, width: int = 200) -> str:
    console = Console(width=width, file=io.StringIO())
    console.print(table)
    return console.file.getvalue()  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("runs") / "digits")


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two strategies over three seeds each, and one run alone."""
    root = tmp_path_factory.mktemp("sweeps") / "strategies"
    tops = {"fedavg": 0.9, "fedprox": 0.93}
    for name, top in tops.items():
        for seed in range(3):
            strategy = {"name": name} | ({"mu": 0.1} if name == "fedprox" else {})
            settings = experiment(strategy=strategy, seed=seed, rounds=20)
            make_run(root / name / f"seed-{seed}", settings, round_lines(20, seed + len(name), top=top))
    make_run(root / "local", experiment(strategy={"name": "local"}, rounds=20), round_lines(20, 5, top=0.7))
    return root


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in which every name that comes from outside is an attack."""
    image, script, svg, link, odd = HOSTILE
    lines = round_lines(12)
    for line in lines:
        line["metrics"] |= {image: 0.5, f"test/{script}": 0.4}
    lines[3]["refused"] = [{"device": image, "reason": f"{script}: {svg}"}, {"device": odd, "reason": odd}]
    lines[4]["cold"] = [svg]
    lines[-1]["per_client"] = {link: {name: i / 5 for i, name in enumerate(HOSTILE)}, odd: {image: 0.1, script: 0.3}}
    data = partition(clients=3, classes=5, names=list(HOSTILE)) | {
        "ids": list(HOSTILE[:3]),
        "provenance": {svg: script},
    }
    done = summary(lines) | {"skipped_files": [{"file": name, "reason": name} for name in HOSTILE]}
    settings = experiment(name=image, rounds=12, strategy={"name": script, "mu": odd}, task={"name": svg})
    parts = {"partition": data, "summary": done, "environment": {script: image, "cpu": odd}}
    return make_run(tmp_path_factory.mktemp("hostile") / "a b'c&d", settings, lines, parts=parts)


# The record


def test_a_record_tells_what_the_folder_says(run: Path) -> None:
    record = Record.read(run)
    assert record.finished and record.name == "digits, two labels each"
    assert (record.done, record.total) == (30, 30)
    assert record.component("strategy") == "fedprox" and record.component("nothing") == ""
    rounds, values = record.series("test/accuracy")
    assert rounds == list(range(0, 31, 2)) and values[-1] == record.final("test/accuracy")
    assert record.series("unheard/of") == ([], []) and record.final("unheard/of") is None
    assert record.main_metric == "test/accuracy" and record.metrics[-1] == "train/loss"
    assert record.sent()[0] == 0 and record.sent()[2] == 2 * (10 * 68_420 + 900)
    assert [(r.round, r.device) for r in record.refused] == [(5, "c3"), (9, "c3"), (9, "c11")]
    assert record.cold == ((7, "c1"),) and record.void == (11,)
    assert record.per_client is not None and record.per_client.round == 30
    assert record.updated == START + timedelta(seconds=120)


def test_an_unfinished_run_gives_what_it_has(tmp_path: Path) -> None:
    folder = tmp_path / "young"
    folder.mkdir()
    (folder / "experiment.toml").write_text(toml(experiment()))
    record = Record.read(folder)
    assert not record.finished and record.rounds == () and record.metrics == () and record.main_metric is None
    assert write_report(folder) == folder / "report.html"


def test_a_torn_last_line_is_no_round(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "torn", lines=[metric_line(0, 0.1), metric_line(1, 0.5)], finished=False)
    for torn in (b'{"round": 2, "metr', b'{"round": 2, "x": "\xc3', b"\0\0\0\0", b'{"round": 2,\n'):
        log = folder / "rounds.jsonl"
        whole = log.read_bytes()
        log.write_bytes(whole + torn)
        assert [line.round for line in Record.read(folder).rounds] == [0, 1]
        log.write_bytes(whole)


def test_a_damaged_line_before_the_last_is_an_error_that_names_it(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "damaged", lines=[metric_line(0, 0.1)], finished=False)
    log = folder / "rounds.jsonl"
    log.write_text('{"round": 0}\n{"round": 1, "me\n{"round": 2}\n')
    with pytest.raises(StoreError, match=r"rounds\.jsonl:2: not a line of JSON"):
        Record.read(folder)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ('{"round": "one"}', "whole number 'round'"),
        ("[1]", "whole number 'round'"),
        ('{"round": 1, "metrics": {"a": "high"}}', "'a': expected a number"),
        ('{"round": 1, "bytes_up": "many"}', "'bytes_up': expected a number"),
        ('{"round": 1, "refused": ["c1"]}', "field 'refused'"),
        ('{"round": 1, "cold": 3}', "'cold': expected a list"),
    ],
)
def test_a_line_that_is_not_what_it_should_be_is_refused(tmp_path: Path, line: str, complaint: str) -> None:
    folder = make_run(tmp_path / "odd", lines=[], finished=False)
    (folder / "rounds.jsonl").write_text(line + "\n")
    with pytest.raises(StoreError, match=rf"rounds\.jsonl:1: .*{complaint}"):
        Record.read(folder)


def test_rounds_written_again_after_a_resume_count_once(tmp_path: Path) -> None:
    lines = [metric_line(0, 0.1, 5), metric_line(1, 0.2, 5), metric_line(2, 0.3, 5), metric_line(1, 0.4, 5)]
    record = Record.read(make_run(tmp_path / "again", lines=lines, finished=False))
    assert record.series("test/accuracy") == ([0, 1], [0.1, 0.4]) and record.bytes_up == 10


def test_what_is_missing_or_malformed_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such folder"):
        Record.read(tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"no experiment\.toml here"):
        Record.read(tmp_path)
    folder = make_run(tmp_path / "run")
    for name, wrong in (
        ("summary.json", "{"),
        ("partition.json", "[]"),
        ("partition.json", '{"table": 3}'),
        ("environment.json", "\0"),
    ):
        good = (folder / name).read_text()
        (folder / name).write_text(wrong)
        with pytest.raises(StoreError, match=re.escape(name)):
            Record.read(folder)
        (folder / name).write_text(good)
    (folder / "rounds.jsonl").unlink()
    with pytest.raises(StoreError, match=r"rounds\.jsonl: missing"):
        Record.read(folder)
    (folder / "experiment.toml").write_text("seed = ")
    with pytest.raises(StoreError, match=r"experiment\.toml: not a TOML file"):
        Record.read(folder)


def test_losses_are_better_when_lower() -> None:
    assert less_is_better("test/loss") and less_is_better("error") and not less_is_better("test/accuracy")


# Numbers in words


@pytest.mark.parametrize(
    ("count", "words"),
    [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (999_499, "999 kB"), (999_600, "1 MB"), (20_553_000, "20.6 MB"),
     (3.2e9, "3.2 GB"), (5e12, "5 TB"), (5e16, "50,000 TB")],
)  # fmt: skip
def test_human_bytes(count: float, words: str) -> None:
    assert tables.human_bytes(count) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 s"), (0.034, "0.034 s"), (12.34, "12.3 s"), (59.97, "1 min 00 s"), (125, "2 min 05 s"),
     (3780, "1 h 03 min"), (200_000, "2 d 7 h"), (math.nan, "–")],
)  # fmt: skip
def test_human_seconds(seconds: float, words: str) -> None:
    assert tables.human_seconds(seconds) == words


def test_numbers() -> None:
    given = (None, 1234567, 0.123456, 123.456, 1e-7, math.nan, -math.inf, True, 54321.9, 3.0)
    assert [tables.number(x) for x in given] == [
        "–", "1,234,567", "0.1235", "123.5", "1e-07", "not a number", "-∞", "True", "54,322", "3"
    ]  # fmt: skip


# Comparison


def test_mean_and_sample_sd_over_three_seeds(tmp_path: Path) -> None:
    """By hand: 0.90 0.92 0.97 has mean 0.93, squared deviations 9 + 1 + 16 = 26e-4, and 26e-4 / 2 = 13e-4."""
    for seed, value in enumerate((0.90, 0.92, 0.97)):
        lines = [metric_line(0, 0.1), metric_line(1, value, sent=1000 * (seed + 1))]
        make_run(tmp_path / "sweep" / f"seed-{seed}", experiment(seed=seed, rounds=1), lines)
    comparison = compare([tmp_path / "sweep"])
    (group,) = comparison.groups
    found = group.metric("test/accuracy")
    assert found is not None and group.label == "sweep" and group.seeds == (0, 1, 2)
    assert found.mean == pytest.approx(0.93) and found.sd == pytest.approx(math.sqrt(13e-4)) and found.n == 3
    assert group.bytes_sent.mean == 2000 and group.bytes_sent.sd == pytest.approx(1000)
    assert tables.spread(found) == "0.930 ± 0.036"
    when, sent, elapsed, point = group.curve("test/accuracy")[1]
    assert elapsed is None
    assert (when, sent) == (1, 2000) and point.sd == pytest.approx(math.sqrt(13e-4))
    told = json.loads(json.dumps(comparison.as_dict(), allow_nan=False))
    assert told["groups"][0]["metrics"]["test/accuracy"]["values"] == [0.9, 0.92, 0.97]
    assert told["groups"][0]["seeds"] == [0, 1, 2] and told["groups"][0]["finished"] == 3


def test_one_value_has_no_sd_and_a_diverged_one_no_mean() -> None:
    assert Spread.of([0.5]) == Spread(0.5, None, (0.5,))
    broken = Spread.of([0.5, math.nan])
    assert math.isnan(broken.mean) and broken.as_dict() == {"mean": None, "sd": None, "n": 2, "values": [0.5, None]}
    assert tables.spread(broken) == "not a number"
    assert tables.spread(Spread.of([0.5, 0.5]), expected=3) == "0.5000 ± 0.0000 (n=2)"


def test_runs_are_grouped_by_all_but_the_seed(sweep: Path) -> None:
    comparison = compare([sweep])
    assert [(g.label, g.n) for g in comparison.groups] == [("fedavg", 3), ("fedprox", 3), ("local", 1)]
    assert comparison.differing == {"strategy.name": ("fedavg", "fedprox", "local"), "strategy.mu": (None, 0.1, None)}
    best = comparison.best("test/accuracy")
    assert best is not None and best.label == "fedprox"
    assert comparison.best("test/loss") is best
    assert any("no sd" in note for note in comparison.notes)


def test_labels_come_from_settings_where_there_is_no_common_parent(tmp_path: Path) -> None:
    one = make_run(tmp_path / "x" / "first", experiment(strategy__mu=0.1))
    two = make_run(tmp_path / "y" / "second", experiment(strategy__mu=1.0))
    assert [g.label for g in compare([one, two]).groups] == ["fedprox, mu=0.1", "fedprox, mu=1.0"]
    three = make_run(tmp_path / "x" / "third", experiment(strategy__mu=1.0))
    assert [g.label for g in compare([one, three]).groups] == ["first", "third"]


def test_seeds_in_separate_folders_meet_and_a_second_name_does_not_part_them(tmp_path: Path) -> None:
    one = make_run(tmp_path / "monday", experiment(seed=1, name="monday"))
    two = make_run(tmp_path / "tuesday", experiment(seed=2, name="tuesday"))
    (group,) = compare([two, one, one]).groups
    assert group.seeds == (1, 2) and group.label == "fedprox"


def test_the_same_seed_never_counts_twice(tmp_path: Path) -> None:
    for folder in ("before", "after"):
        for seed in (0, 1):
            make_run(tmp_path / folder / f"seed-{seed}", experiment(seed=seed))
    comparison = compare([tmp_path])
    assert [(g.label, g.seeds) for g in comparison.groups] == [("after", (0, 1)), ("before", (0, 1))]
    assert comparison.differing == {}


def test_unfinished_runs_are_pointed_out(tmp_path: Path) -> None:
    make_run(tmp_path / "a", experiment(seed=0))
    make_run(tmp_path / "b", experiment(seed=1), round_lines(7), finished=False)
    assert "1 of 2 runs not finished (rounds 7/30)" in compare([tmp_path]).notes[0]


def test_nothing_to_compare_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nothing to compare"):
        compare([])
    with pytest.raises(DataError, match="no run in this folder"):
        compare([tmp_path])
    with pytest.raises(DataError, match="no such folder"):
        compare([tmp_path / "nowhere"])


def test_runs_are_found_at_any_depth_but_not_inside_runs(tmp_path: Path) -> None:
    make_run(tmp_path / "b" / "c" / "seed-0")
    make_run(tmp_path / "a")
    make_run(tmp_path / "a" / "inner")
    make_run(tmp_path / ".hidden")
    assert find_runs(tmp_path) == [tmp_path / "a", tmp_path / "b" / "c" / "seed-0"]


# Terminal tables


def test_tables_for_the_terminal(run: Path, sweep: Path) -> None:
    record = Record.read(run)
    text = shown(tables.run_table(record))
    assert "digits, two labels each: fedprox on objects" in text and "30/30 rounds" in text and "3 refused" in text
    text = shown(tables.compare_table(compare([sweep])))
    assert "fedavg" in text and "±" in text
    text = shown(tables.partition_table(record.partition["table"]))
    assert "total-variation" in text and "0.53" in text
    text = shown(tables.runs_table([record], now=START + timedelta(seconds=120 + 3780)))
    assert "30/30" in text and "1 h 03 min" in text and "test/accuracy" in text


def test_terminal_tables_pass_on_no_control_characters_and_no_markup(hostile: Path) -> None:
    record = Record.read(hostile)
    text = shown(tables.run_table(record)) + shown(tables.runs_table([record]))
    assert "\x1b" not in text and HOSTILE[0] in text


# Pages


class Links(HTMLParser):
    """What a browser would see: elements, and the attributes that could fetch or run something."""

    def __init__(self, page: Path | str) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, str]]] = []
        self.text: list[str] = []
        self.title = ""
        self.feed(page if isinstance(page, str) else page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, {key: value or "" for key, value in attrs}))

    def handle_data(self, data: str) -> None:
        self.text.append(data)
        if self.seen and self.seen[-1][0] == "title":
            self.title += data


def assert_self_contained(page: Path) -> None:
    for tag, attributes in Links(page).seen:
        assert tag not in {"img", "iframe", "object", "embed", "base", "svg"}, f"<{tag}> came from a name"
        assert not any(name.startswith("on") for name in attributes), attributes
        for name in ("src", "srcset", "action", "data"):
            assert name not in attributes
        assert attributes.get("href", "#").startswith(("#", "data:,"))
    text = page.read_text(encoding="utf-8")
    # beyond the drawing library, no address of any kind
    mine = re.sub(r"<script>.*?</script>", "", text, flags=re.DOTALL)
    assert "http:" not in mine and "https:" not in mine and "url(" not in mine and "@import" not in mine


def test_the_report_has_every_part_and_fetches_nothing(run: Path) -> None:
    page = write_report(run)
    assert page == run / "report.html"
    assert_self_contained(page)
    links = Links(page)
    ids = {attributes.get("id") for _, attributes in links.seen}
    parts = "result curves clients partition travelled irregular settings environment repeat"
    assert set(parts.split()) <= ids
    text = " ".join(links.text)
    for words in (
        "10.3 MB up", "not finite", "c11", "IMG_0031.jpg",
        "round changed nothing because too few replies were usable: 11",
        "wayfare run digits/experiment.toml --out digits-again", f"{30:064x}", "clients_per_round",
    ):  # fmt: skip
        assert words in text, words
    assert "Unfinished" not in text
    plots = [attributes for _, attributes in links.seen if attributes.get("class") == "plot"]
    assert len(plots) == 5 and all(plot["role"] == "img" and plot["aria-label"] for plot in plots)
    assert page.read_text(encoding="utf-8").count("plotly.js v") == 1
    assert not list(run.glob(".report*"))


def test_a_private_run_is_the_same_only_with_its_key(run: Path, tmp_path: Path) -> None:
    folder = make_run(tmp_path / "private", experiment(privacy={"name": "clientlevel"}))
    private, public = (" ".join(Links(write_report(each)).text) for each in (folder, run))
    assert "the run should end with the same model" in private and "privacy.key" in private
    assert "It should end with the same model" in public and "privacy.key" not in public


def test_an_unfinished_run_has_a_banner_and_says_how_to_go_on(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "half", lines=round_lines(8), finished=False)
    text = " ".join(Links(write_report(folder, tmp_path / "new" / "page.html")).text)
    assert "This run is not finished: 8/30 rounds" in text and "wayfare resume half" in text
    for words in ("No reply was refused.", "No round was void.", "No device had lost its memory"):
        assert words in text


def test_runs_with_little_to_show_have_pages_too(tmp_path: Path) -> None:
    bare = {"partition": {"table": {"clients": 4, "samples": 80}}, "environment": {}}
    lines = [metric_line(0, None), metric_line(1, math.nan), metric_line(2, None)]
    text = " ".join(Links(write_report(make_run(tmp_path / "bare", lines=lines, finished=False, parts=bare))).text)
    for words in ("not a number", "no labels", "Nothing was sent", "No round was evaluated per client"):
        assert words in text, words


def test_large_runs_are_thinned(tmp_path: Path) -> None:
    parts = {"partition": partition(clients=500, classes=80)}
    folder = make_run(tmp_path / "large", experiment(rounds=1000), round_lines(1000, clients=500), parts=parts)
    page = write_report(folder)
    text = " ".join(Links(page).text)
    assert (
        "one in 6 of 1,001" in text
        and "The picture shows the first 100 of 500 clients and the commonest 60 of 80 classes." in text
    )
    assert page.stat().st_size < 6_000_000


def test_hostile_names_are_text_in_the_report(hostile: Path) -> None:
    page = write_report(hostile)
    assert_self_contained(page)
    text = " ".join(Links(page).text)
    assert HOSTILE[0] in text and HOSTILE[1] in text
    assert "'a b'\"'\"'c&d/experiment.toml'" in text


def test_hostile_names_are_text_in_the_comparison(hostile: Path, run: Path, tmp_path: Path) -> None:
    page = write_page(compare([hostile, run]), tmp_path)
    assert page == tmp_path / "comparison.html"
    assert_self_contained(page)
    assert HOSTILE[1] in " ".join(Links(page).text)


def test_the_comparison_page_shows_groups_and_differences(sweep: Path, tmp_path: Path) -> None:
    page = write_page(compare([sweep]), tmp_path / "page.html")
    assert_self_contained(page)
    text = " ".join(Links(page).text)
    assert "strategy.mu" in text and "±" in text and "fedprox/seed-2" in text
    assert str(sweep) not in text


def test_a_page_that_cannot_be_written_is_an_error(run: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be written"):
        write_report(run, tmp_path / "file" / "page.html")


# Figures


def all_figures(record: Record, comparison: Comparison) -> Iterator[figures.Figure]:
    yield from figures.metric_figures(record)
    assert record.per_client is not None
    yield figures.client_figure("clients", "accuracy", record.per_client)
    for data in (partition(), partition(150, 80)):
        drawn = figures.partition_figure(data)
        assert drawn is not None
        yield drawn
    traffic = figures.traffic_figure(record)
    assert traffic is not None
    yield traffic


def test_figures_are_what_plotly_understands(run: Path, sweep: Path) -> None:
    graph_objects = pytest.importorskip("plotly.graph_objects")
    for figure in all_figures(Record.read(run), compare([sweep])):
        graph_objects.Figure(data=painted(figure.spec["data"]), layout=painted(figure.spec["layout"]))


def test_curves_over_bytes_have_the_same_heights(run: Path) -> None:
    figure = figures.metric_figures(Record.read(run))[0]
    over = figure.spec["over"]
    assert figure.title == "accuracy" and [key.name for key in figure.keys] == ["test", "validation", "clients"]
    assert over["rounds"]["x"][0][:3] == [0, 2, 4] and over["bytes"]["title"] == "sent up and down, MB"
    assert over["bytes"]["x"][0][1] == pytest.approx(2 * (10 * 68_420 + 900) / 1e6)


def test_a_metric_is_called_in_a_figure_what_it_is_called_in_the_table(tmp_path: Path) -> None:
    lines = round_lines(3)
    for line in lines:
        line["metrics"] |= {"clock/joules": 2.0, "privacy/epsilon": 1.0}
    titles = [figure.title for figure in figures.metric_figures(Record.read(make_run(tmp_path / "r", lines=lines)))]
    assert "energy of all devices, J" in titles and "epsilon" in titles


def test_a_histogram_of_few_clients_has_whole_ticks() -> None:
    few, many = (PerClient(1, {"accuracy": {f"c{i}": i / n for i in range(n)}}) for n in (4, 200))
    assert figures.client_figure("f", "accuracy", few).spec["layout"]["yaxis"]["dtick"] == 1
    assert "dtick" not in figures.client_figure("f", "accuracy", many).spec["layout"]["yaxis"]


def test_the_band_is_one_sd_to_each_side() -> None:
    key = figures.Key("g0", "a", "@c1")
    curve = figures.MetricCurve(key, [0, 1], [0, 10], [0.5, 0.8], band=[0.1, 0.2])
    band, line = figures.curve_figure("f", "accuracy", [curve]).spec["data"]
    assert band["y"] == pytest.approx([0.6, 1.0, 0.6, 0.4]) and band["x"] == [0, 1, 1, 0] and line["y"] == [0.5, 0.8]


def test_a_partition_without_labels_has_no_picture() -> None:
    assert figures.partition_figure({}) is None
    assert figures.partition_figure({"classes": ["a"], "counts": [[1, 2]]}) is None
    assert figures.partition_figure({"classes": ["a"], "counts": [["x"]]}) is None


# In a browser


@pytest.mark.parametrize(
    ("scheme", "blue"), [(1, "rgb(47, 111, 159)"), (0, "rgb(111, 177, 224)")], ids=["light", "dark"]
)
def test_the_report_draws_in_a_browser_without_complaint(run: Path, tmp_path: Path, scheme: int, blue: str) -> None:
    page = write_report(run, tmp_path / "page.html")
    dom, said = browse(page, tmp_path, f"--blink-settings=preferredColorScheme={scheme}")
    assert said == []
    assert 'data-drawn="5"' in dom and dom.count('class="main-svg"') >= 5
    assert f"stroke: {blue}" in dom


def test_the_comparison_draws_in_a_browser_without_complaint(sweep: Path, tmp_path: Path) -> None:
    dom, said = browse(write_page(compare([sweep]), tmp_path / "page.html"), tmp_path)
    assert said == []
    assert 'data-drawn="5"' in dom


def test_the_axis_and_the_legend_can_be_switched(run: Path, tmp_path: Path) -> None:
    """By a script that presses the buttons; the page's own policy would not let it run, so the copy has none."""
    text = write_report(run).read_text(encoding="utf-8")
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text, count=1)
    press = "document.querySelector('input[value=bytes]').click(); document.querySelector('#curves button').click()"
    copy = tmp_path / "pressed.html"
    copy.write_text(text.replace("</body>", f"<script>{press}</script></body>"), encoding="utf-8")
    after, said = browse(copy, tmp_path)
    assert said == []
    assert after.count(">sent up and down, MB</text>") == 2 and 'aria-pressed="false"' in after
    # three curves of accuracy and two of loss, less the one of each that was switched off; and a tick per client
    assert after.count('class="trace scatter') == 3 + 1


def test_the_policy_stops_a_script_that_is_not_the_pages_own(run: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    text = write_report(run).read_text(encoding="utf-8")
    page.write_text(text.replace("</body>", "<script>document.title='pwned'</script></body>"), encoding="utf-8")
    dom, said = browse(page, tmp_path)
    assert "pwned" not in Links(dom).title and any("Content Security Policy" in line for line in said)


def test_hostile_names_do_nothing_in_a_browser(hostile: Path, run: Path, tmp_path: Path) -> None:
    pages = [write_report(hostile, tmp_path / "a.html"), write_page(compare([hostile, run]), tmp_path / "b.html")]
    for page in pages:
        dom, said = browse(page, tmp_path)
        assert said == [] and "data-drawn" in dom
        seen = Links(dom)
        assert "img" not in {tag for tag, _ in seen.seen} and "pwned" not in seen.title
        assert not any(name.startswith("on") for _, attributes in seen.seen for name in attributes)
        assert not any("javascript:" in attributes.get("href", "") for _, attributes in seen.seen)
