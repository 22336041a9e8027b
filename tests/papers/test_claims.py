"""The catalogue of claims: its files against the recipes and the papers' numbers, verdicts by hand, the command."""

import json
import math
from pathlib import Path

import pytest

from wayfare.cli import main
from wayfare.core.errors import ConfigError
from wayfare.pages.record import Record
from wayfare.papers import files
from wayfare.papers.catalogue import STUDY, ClaimCatalogue
from wayfare.papers.claims import Claim, Sheet, Term, check, read_claims, terms
from wayfare.papers.claims_document import Setting, write_section
from wayfare.papers.paper import Cell, Paper
from wayfare.papers.verdicts import Estimate, Verdict, decide, paper_effect

SHEET = Sheet(
    Paper(metric="test/R@1", unit="%", reach=50.0),
    {"a": Cell(paper=60.0), "b": Cell(paper=55.0), "c": Cell(paper=40.0), "d": Cell()},
)


@pytest.fixture(scope="module")
def catalogue():
    return ClaimCatalogue.read()


def claim(**settings):
    return Claim(**{"id": "p/x", "claim": "A beats B.", "source": "Tab. 1", "recipe": "p/t"} | settings)


def run(seed, value, **metrics):
    return Record(Path("r"), {"seed": seed}, "", (), summary={"metrics": {"test/R@1": value, **metrics}, "seconds": 1})


def runs(**cells):
    return {name: {seed: run(seed, value) for seed, value in enumerate(values)} for name, values in cells.items()}


# ---- the files


def test_every_table_and_figure_with_a_recipe_is_in_the_catalogue(catalogue):
    """All but those that begin from a floor which no paper has: they are ours."""
    told = {claim.recipe for claim in catalogue.claims}
    papers = set(files.claim_files())
    of_papers = {
        name
        for name, path in files.recipes().items()
        if name.partition("/")[0] in papers and "[paper]" in (text := path.read_text()) and "\nfloor = " not in text
    }
    assert of_papers | {STUDY} <= told and papers == {"fedcafe", "fedtour", "fedvpr", "psg"}


@pytest.mark.parametrize(
    ("paper", "places"),
    [
        ("fedvpr", [*(f"Tab. {n}" for n in range(1, 11)), "Fig. 3", "Fig. 4", "Fig. 5", "Abstract", "Sec. 6"]),
        ("fedtour", ["Fig. 4", "Fig. 5", "Fig. 6", "Sec. IV-A", "Sec. IV-B", "Abstract", "VI"]),
        ("psg", ["Tab. 1", "Tab. 2", "Tab. 3", "Sec. 4.2", "Sec. 4.3.1", "Sec. 4.3.2", "Sec. 5.2", "Sec. 6"]),
        ("fedcafe", [*(f"Tab. {n}" for n in range(1, 6)), "Fig. 2", "Fig. 3", "Abstract", "Sec. 4.4 (5)"]),
    ],
)
def test_every_place_that_claims_something_is_a_source(catalogue, paper, places):
    sources = " ".join(claim.source for claim in catalogue.claims if claim.publication == paper)
    assert [place for place in places if place not in sources] == []


def test_the_papers_own_numbers_bear_their_claims_out_except_where_said(catalogue):
    """A claim with the wrong cells or direction would fail here: the paper's values go through the same statistic."""
    for each in catalogue.claims:
        effect = paper_effect(each, catalogue.sheets.get(each.recipe))
        if effect is None:
            assert not each.paper_disagrees, each.id
            continue
        exact = Estimate(effect, effect, effect, 2).verdict(each)
        assert exact == ("does not hold" if each.paper_disagrees else "holds"), f"{each.id}: {effect}"


def test_effects_that_the_papers_print(catalogue):
    """Numbers from the papers' texts: not from their tables, which the recipes have."""
    printed = {
        "fedvpr/client-jitter-hurts": -7.5,
        "fedtour/most-merges-improve": 69.93,
        "psg/centralised-above-iid": 2.45,
        "psg/shards-iid-above-non-iid": 0.77,
        "psg/fedavgm-helps": 1.24,
        "psg/fedadam-helps": 1.30,
        "psg/celeba-fedavgm-is-quicker": -20,
        "fedcafe/mirflickr-above-local-i2t": 0.075,
        "fedcafe/mirflickr-above-local-t2i": 0.0726,
    }
    found = {c.id: paper_effect(c, catalogue.sheets[c.recipe]) for c in catalogue.claims if c.id in printed}
    assert found == pytest.approx(printed, abs=0.01)


def test_claims_that_are_not_tested_say_why(catalogue):
    untested = [each for each in catalogue.claims if each.untested]
    assert untested and all(len(each.untested.split()) > 5 for each in untested)
    assert len({each.id for each in catalogue.claims}) == len(catalogue.claims)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("recipe = 'table1'\nabove = ['fedavgg']\nbelow = ['random']", "unknown cell 'fedavgg'; did you mean 'fedavg'"),
        ("recipe = 'tabel1'\nabove = ['fedavg']\nbelow = ['random']", "unknown recipe 'fedvpr/tabel1'; did you mean"),
        ("recipe = 'table1'\nmetric = 'R@1'\nabove = ['fedavg']", "unknown metric 'R@1'"),
        ("recipe = 'table1'\nabove = ['a-{n}']", "'n' in braces is not in `over`"),
        ("recipe = 'table1'\nabove = ['fedavg at x%']", "a share such as"),
        ("recipe = 'table1'\nstatistic = 'every'\nabove = ['a', 'b']\nbelow = ['c', 'd', 'e']", "cannot be paired"),
        ("recipe = 'table1'\nstatistic = 'slope'\nabove = ['a']", "a slope needs"),
        ("recipe = 'table1'\nabove = ['fedavg']\ndirection = 'equal'", "needs margin"),
        ("recipe = 'table1'\nabov = ['fedavg']", "unknown setting 'abov'; did you mean 'above'"),
        ("above = ['fedavg']", "give a recipe"),
    ],
)
def test_bad_claims_are_refused(catalogue, tmp_path, text, told):
    file = tmp_path / "fedvpr.toml"
    file.write_text(f"[claims.x]\nclaim = 'A.'\nsource = 'Tab. 1'\n{text}\n")
    with pytest.raises(ConfigError) as error:
        check(read_claims([file]), catalogue.sheets)
    assert told in str(error.value)


def test_names_in_braces_stand_for_all_of_them(tmp_path):
    file = tmp_path / "p.toml"
    file.write_text(
        "[claims.x]\nclaim = 'A.'\nsource = 's'\nrecipe = 't'\nstatistic = 'every'\n"
        "above = ['x-{n}']\nbelow = ['{r}-{n}']\nover.r = ['y', 'z']\nover.n = [1, 2]\n"
    )
    (found,) = read_claims([file])
    assert found.pairs == (("x-1", "y-1"), ("x-2", "y-2"), ("x-1", "z-1"), ("x-2", "z-2"))
    assert found.cells == ("x-1", "x-2", "y-1", "y-2", "z-1", "z-2")
    assert terms("a-b - c at 25%") == (Term("a-b"), Term("c", -1, 0.25))


# ---- verdicts


def test_intervals_by_hand():
    """1, 2, 3: sd 1, t(2) = 4.302653, 4.302653 / sqrt(3) = 2.484138."""
    found = Estimate.of([1.0, 2.0, 3.0])
    assert (found.mean, found.low, found.high, found.n) == pytest.approx((2.0, -0.484138, 4.484138, 3), abs=1e-6)
    assert Estimate.of([2.0]) == Estimate(2.0)


@pytest.mark.parametrize(
    ("settings", "a", "b", "word", "effect"),
    [
        ({}, [0.50, 0.61, 0.72], [0.40, 0.50, 0.60], "holds", 11.0),  # paired: 10, 11, 12, although cells overlap
        ({}, [0.40, 0.50, 0.60], [0.50, 0.61, 0.72], "does not hold", -11.0),
        ({"direction": "less"}, [0.40, 0.50, 0.60], [0.50, 0.61, 0.72], "holds", -11.0),
        ({}, [0.50, 0.60, 0.40], [0.49, 0.58, 0.43], "undecided", 0.0),
        ({"margin": 10.0}, [0.50, 0.61, 0.72], [0.40, 0.50, 0.60], "undecided", 11.0),  # [8.5, 13.5]
        ({"margin": 14.0}, [0.50, 0.61, 0.72], [0.40, 0.50, 0.60], "does not hold", 11.0),
        ({"direction": "equal", "margin": 14.0}, [0.50, 0.61, 0.72], [0.40, 0.50, 0.60], "holds", 11.0),
        ({"direction": "equal", "margin": 8.0}, [0.50, 0.61, 0.72], [0.40, 0.50, 0.60], "does not hold", 11.0),
        ({}, [0.5], [0.4], "undecided", 10.0),
    ],
)
def test_differences(settings, a, b, word, effect):
    found = decide(claim(above=("a",), below=("b",), **settings), SHEET, runs(a=a, b=b), "small")
    assert found.word == word and found.effect.mean == pytest.approx(effect) and found.paper == 5.0
    assert bool(found.reason) == (word == "undecided")


def test_differences_of_differences_groups_slopes_and_shares():
    cells = runs(a=[0.6, 0.6], b=[0.5, 0.5], c=[0.3, 0.3], d=[0.1, 0.1])
    for settings, effect, paper in [
        ({"above": ("a", "b"), "below": ("c",)}, 25.0, 17.5),
        ({"above": ("a - b",), "below": ("c - d",)}, -10.0, None),
        ({"above": ("a",)}, 60.0, 60.0),
        ({"statistic": "slope", "along": ("c", "b", "a")}, 15.0, 10.0),
        ({"statistic": "slope", "along": ("c", "b", "a"), "at": (1.0, 2.0, 4.0)}, 65 / 7, 85 / 14),
        ({"statistic": "share", "above": ("a", "c"), "below": ("b", "b")}, 0.5, 0.5),
    ]:
        found = decide(claim(**settings), SHEET, cells, "small")
        assert found.effect.mean == pytest.approx(effect) and found.effect.low == pytest.approx(effect)
        assert found.paper == (None if paper is None else pytest.approx(paper))


def test_every_pair_has_to_hold_and_one_against_it_has_to_be_clear():
    every = claim(statistic="every", above=("a",), below=("b", "c"))
    found = decide(every, SHEET, runs(a=[0.60, 0.61, 0.62], b=[0.50, 0.52, 0.52], c=[0.3, 0.3, 0.3]), "small")
    assert (found.word, found.shown, found.holding) == ("holds", "a over b", (2, 2))
    assert found.effect.mean == pytest.approx(29 / 3) and found.paper == 5.0
    # b is ahead by 1, 2, 3 points with an interval of ± 2.48 and, at 97.5 % because there are two pairs, ± 3.58
    found = decide(every, SHEET, runs(a=[0.50] * 3, b=[0.525, 0.535, 0.545], c=[0.3] * 3), "small")
    assert (found.word, found.holding) == ("undecided", (1, 2)) and found.effect.high < 0
    found = decide(every, SHEET, runs(a=[0.50] * 3, b=[0.53, 0.54, 0.55], c=[0.3] * 3), "small")
    assert found.word == "does not hold" and found.shown == "a over b"


def test_what_is_missing_is_said():
    plain = claim(above=("a",), below=("b",))
    assert decide(plain, SHEET, runs(a=[0.5]), "small").reason == "no finished run (b)"
    assert "weights" in decide(plain, SHEET, {}, "small", {"a": "its weights are not available"}).reason
    apart = {"a": {0: run(0, 0.5)}, "b": {1: run(1, 0.5)}}
    assert decide(plain, SHEET, apart, "small").reason == "its cells have no seed in common"
    found = decide(plain, SHEET, runs(a=[0.5, math.nan], b=[0.4, 0.4]), "small")
    assert (found.word, found.reason) == ("undecided", "a, seed 1: not a finite test/R@1")
    only = claim(above=("a",), below=("b",), paper_scale_only="another network")
    assert decide(only, SHEET, runs(a=[0.6, 0.6], b=[0.5, 0.5]), "small").word == "untested"
    assert decide(only, SHEET, runs(a=[0.6, 0.6], b=[0.5, 0.5]), "paper").word == "holds"


# ---- the command


def test_list(capsys):
    assert main(["claims", "--list", "--json", "--paper", "fedtour"]) == 0
    found = {each["id"]: each for each in json.loads(capsys.readouterr().out)["claims"]}
    assert found["fedtour/fedtour-above-gossip"]["paper"] == pytest.approx(11.77)
    assert found["fedtour/fedtour-above-gossip"]["unit"] == "points"
    assert main(["claims", "--list", "--paper", "fedtour", "--only", "fedtour/gossip-*,*-saturates"]) == 0
    assert "4 claims" in " ".join(capsys.readouterr().out.split())
    assert main(["claims", "--list", "--json", "--only", "fedtour/figure5,psg/table2"]) == 0
    recipes = [each["recipe"] for each in json.loads(capsys.readouterr().out)["claims"]]
    assert recipes == ["fedtour/figure5"] * 5 + ["psg/table2"] * 7
    assert main(["claims", "--list", "--paper", "fedtour", "--only", "fedtour/gossip-help"]) == 2
    assert "did you mean 'fedtour/gossip-helps'" in " ".join(capsys.readouterr().err.split())
    assert main(["claims", "--list", "--paper", "fedtours"]) == 2
    assert "did you mean 'fedtour'" in " ".join(capsys.readouterr().err.split())


def test_data_of_several_kinds_is_refused(capsys, tmp_path):
    assert main(["claims", "--no-run", "--paper", "psg", "--data", str(tmp_path)]) == 2
    assert "choose with --paper and --only" in capsys.readouterr().err


TOY = """
rounds = 1
[model]
width = 4
hidden = 8
[task]
name = "objects"
[partition]
name = "dirichlet"
clients = 2
alpha = 0.5
[training]
epochs = 1
batch_size = 64
optimizer = "adam"
[evaluation]
holdout = 0.0
[paper]
title = "A paper, Tab. 1"
metric = "test/accuracy"
unit = "%"
runs = "toy"
[small]
about = "one round"
[cells.quick]
paper = 60.0
training.lr = 0.03
[cells.none]
paper = 10.0
training.lr = 1e-9
"""
CLAIM = """
title = "A paper"
[claims.learns]
claim = "Learning helps."
source = "Tab. 1"
recipe = "table1"
above = ["quick"]
below = ["none"]
[claims.learns-not]
claim = "Learning does harm."
source = "Tab. 1"
recipe = "table1"
above = ["quick"]
below = ["none"]
direction = "less"
margin = -1.0
"""


def test_runs_what_is_missing_once_and_writes_sections(tmp_path, monkeypatch, capsys):
    (tmp_path / "table1.toml").write_text(TOY)
    (tmp_path / "toy.toml").write_text(CLAIM)
    monkeypatch.setattr(files, "recipes", lambda: {"toy/table1": tmp_path / "table1.toml"})
    monkeypatch.setattr(files, "claim_files", lambda: {"toy": tmp_path / "toy.toml"})
    out, docs = tmp_path / "runs", tmp_path / "claims.md"
    given = ["claims", "--json", "--out", str(out), "--docs", str(docs)]
    assert main([*given, "--no-run"]) == 0
    assert {each["reason"] for each in json.loads(capsys.readouterr().out)["verdicts"]} == {
        "no finished run (quick, none)"
    }
    assert main([*given, "--seeds", "2", "--engine", "local", "--track", "none"]) == 0
    learns, harm = json.loads(capsys.readouterr().out)["verdicts"]
    assert learns["effect"] == harm["effect"] > 10 and learns["seeds"] == 2 and learns["paper"] == 50.0
    assert learns["verdict"] in ("holds", "undecided") and harm["verdict"] in ("does not hold", "undecided")
    text = docs.read_text()
    assert text.count("<!-- claims: toy, small") == 1 and "4 runs" in text and "one round" in text
    # decided again without running: the same numbers; a run that was changed is refused
    assert main([*given, "--no-run"]) == 0
    assert json.loads(capsys.readouterr().out)["verdicts"][0]["effect"] == learns["effect"]
    (tmp_path / "table1.toml").write_text(TOY.replace("hidden = 8", "hidden = 9"))
    assert main([*given, "--no-run"]) == 2
    assert "other settings" in capsys.readouterr().err


def test_a_cell_that_fails_does_not_keep_the_others_from_running(tmp_path, monkeypatch, capsys):
    (tmp_path / "table1.toml").write_text(TOY.replace("[cells.quick]", "[cells.quick]\ntopology.per_round = 3"))
    (tmp_path / "toy.toml").write_text(CLAIM)
    monkeypatch.setattr(files, "recipes", lambda: {"toy/table1": tmp_path / "table1.toml"})
    monkeypatch.setattr(files, "claim_files", lambda: {"toy": tmp_path / "toy.toml"})
    out = tmp_path / "runs"
    assert main(["claims", "--json", "--out", str(out), "--engine", "local", "--track", "none"]) == 0
    told = capsys.readouterr()
    assert "toy/table1, quick/seed-0: topology.per_round = 3, but 2 clients take part" in " ".join(told.err.split())
    assert {each["reason"] for each in json.loads(told.out)["verdicts"]} == {"not run: it failed (quick)"}
    assert (out / "toy/small/none/seed-0/summary.json").is_file()


def test_sections_of_other_data_are_kept(tmp_path):
    file, word = tmp_path / "docs" / "claims.md", Verdict(claim(), "holds", Estimate(1.0, 0.5, 1.5, 3), 2.0, "points")
    for data, seconds in [("the town", 60.0), ("MSLS", 120.0), ("the town", 180.0)]:
        write_section(
            file,
            Setting(
                "p",
                "A paper",
                date="2026-01-01",
                scale="small",
                data=data,
                settings="small ones",
                runs=3,
                seconds=seconds,
            ),
            [word],
        )
    text = file.read_text()
    assert text.count("## p, small scale") == 2 and "2 min 00 s" in text and "3 min 00 s" in text
    assert (
        "1 min 00 s" not in text
        and "| **holds** | A beats B. | Tab. 1 | +1.00 [0.50, 1.50] points | +2.00 | 3 |" in text
    )
