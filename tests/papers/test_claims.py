"""The catalogue of claims: its files against the recipes and the papers' numbers, verdicts by hand, the command."""

import json
import math
from pathlib import Path
from xml.etree import ElementTree

import pytest

from wayfare.cli import main
from wayfare.core.errors import ConfigError, DataError
from wayfare.pages.record import Record
from wayfare.papers import files
from wayfare.papers.catalogue import STUDY, ClaimCatalogue
from wayfare.papers.claims import Claim, Sheet, Term, check, read_claims, terms
from wayfare.papers.claims_pages import pages
from wayfare.papers.claims_results import ClaimResults, Setting, read_results
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
    """All but those of ours: they begin from a floor that no paper has, or ask what a paper only describes."""
    told = {claim.recipe for claim in catalogue.claims}
    papers = set(files.claim_files())
    of_papers = {
        name
        for name, path in files.recipes().items()
        if name.partition("/")[0] in papers and "[paper]" in (text := path.read_text()) and "\nfloor = " not in text
    }
    assert of_papers - {"fedtour/areas"} | {STUDY} <= told and papers == {"fedcafe", "fedtour", "fedvpr", "psg"}


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
    [  # at the first look, 4 seeds at 1 %: t(3) = 5.8409; 10, 11, 12, 11: sd 0.8165, so ± 2.3846
        ({}, [0.50, 0.61, 0.72, 0.61], [0.40, 0.50, 0.60, 0.50], "holds", 11.0),  # paired, although cells overlap
        ({}, [0.40, 0.50, 0.60, 0.50], [0.50, 0.61, 0.72, 0.61], "does not hold", -11.0),
        ({"direction": "less"}, [0.40, 0.50, 0.60, 0.50], [0.50, 0.61, 0.72, 0.61], "holds", -11.0),
        ({}, [0.50, 0.60, 0.40, 0.50], [0.49, 0.58, 0.43, 0.50], "undecided", 0.0),
        ({"margin": 10.0}, [0.50, 0.61, 0.72, 0.61], [0.40, 0.50, 0.60, 0.50], "undecided", 11.0),
        ({"margin": 8.5}, [0.50, 0.61, 0.72, 0.61], [0.40, 0.50, 0.60, 0.50], "holds", 11.0),
        ({"margin": 13.5}, [0.50, 0.61, 0.72, 0.61], [0.40, 0.50, 0.60, 0.50], "does not hold", 11.0),
        ({"direction": "equal", "margin": 14.0}, [0.50, 0.61, 0.72, 0.61], [0.40, 0.50, 0.60, 0.50], "holds", 11.0),
        ({"direction": "equal", "margin": 8.0}, [0.50, 0.61, 0.72, 0.61], [0.4, 0.5, 0.6, 0.5], "does not hold", 11.0),
        ({}, [0.5], [0.4], "undecided", 10.0),
        ({}, [0.50, 0.61, 0.72], [0.40, 0.50, 0.60], "undecided", 11.0),  # before the first look
    ],
)
def test_differences(settings, a, b, word, effect):
    found = decide(claim(above=("a",), below=("b",), **settings), SHEET, runs(a=a, b=b), "small")
    assert found.word == word and found.effect.mean == pytest.approx(effect) and found.paper == 5.0
    assert bool(found.reason) == found.can_continue == (word == "undecided")
    if len(a) == 4:
        assert found.visible == pytest.approx(3.72 * found.effect.deviation)


def test_the_first_look_that_decides_counts():
    """Six seeds: after four it holds; what the others say no longer matters, and nothing else is looked at."""
    a, b = [0.50, 0.61, 0.72, 0.61, 0.1, 0.1], [0.40, 0.50, 0.60, 0.50, 0.9, 0.9]
    found = decide(claim(above=("a",), below=("b",)), SHEET, runs(a=a, b=b), "small")
    assert (found.word, found.effect.n) == ("holds", 4) and found.effect.mean == pytest.approx(11.0)
    a[3] = math.nan  # not even that a later run has no number
    assert decide(claim(above=("a",), below=("b",)), SHEET, runs(a=a, b=b), "small").reason.endswith("test/R@1")
    found = decide(claim(above=("a",), below=("b",)), SHEET, runs(a=[0.5, 0.7] * 10, b=[0.6] * 20), "small")
    assert (found.word, found.effect.n, found.can_continue) == ("undecided", 20, False)


def test_differences_of_differences_groups_slopes_and_shares():
    cells = runs(a=[0.6] * 9, b=[0.5] * 9, c=[0.3] * 9, d=[0.1] * 9)
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
    a, b = [0.60, 0.61, 0.62, 0.61], [0.50, 0.52, 0.52, 0.51]
    found = decide(every, SHEET, runs(a=a, b=b, c=[0.3] * 4), "small")
    assert (found.word, found.shown, found.holding) == ("holds", "a over b", (2, 2))
    assert found.effect.mean == pytest.approx(9.75) and found.paper == 5.0
    # b is ahead by 2.5, 3.5, 4.5, 3.5 points: t = 3.5 / (0.8165 / 2) = 8.573. One pair alone would need t(3) at 0.5 %
    # on this side, 5.841; with two pairs it is 0.25 %, 7.453
    found = decide(every, SHEET, runs(a=[0.50] * 4, b=[0.525, 0.535, 0.545, 0.535], c=[0.3] * 4), "small")
    assert (found.word, found.shown, found.holding) == ("does not hold", "a over b", (1, 2))
    found = decide(every, SHEET, runs(a=[0.50] * 4, b=[0.519, 0.529, 0.539, 0.529], c=[0.3] * 4), "small")
    assert (found.word, found.holding) == ("undecided", (1, 2)) and found.effect.high < 0  # t = 7.103


def test_equal_shares_decide_only_when_a_sign_test_would():
    """Four equal shares have an interval without width: 2 / 2^4 = 12.5 % is more than 1 %; 2 / 2^9 = 0.4 % is less."""
    share = claim(statistic="share", above=("a", "c"), below=("b", "b"), margin=0.4)
    for seeds, word in [(4, "undecided"), (9, "holds")]:
        found = decide(share, SHEET, runs(a=[0.6] * seeds, b=[0.5] * seeds, c=[0.7] * seeds), "small")
        assert (found.word, found.effect.mean) == (word, 1.0)


def test_what_is_missing_is_said():
    plain = claim(above=("a",), below=("b",))
    assert decide(plain, SHEET, runs(a=[0.5]), "small").reason == "no finished run (b)"
    assert "weights" in decide(plain, SHEET, {}, "small", {"a": "its weights are not available"}).reason
    apart = {"a": {0: run(0, 0.5)}, "b": {1: run(1, 0.5)}}
    assert decide(plain, SHEET, apart, "small").reason == "its cells have no seed in common"
    found = decide(plain, SHEET, runs(a=[0.5, math.nan], b=[0.4, 0.4]), "small")
    assert (found.word, found.reason) == ("undecided", "a, seed 1: not a finite test/R@1")
    only = claim(above=("a",), below=("b",), paper_scale_only="another network")
    assert decide(only, SHEET, runs(a=[0.6] * 4, b=[0.5] * 4), "small").word == "untested"
    assert decide(only, SHEET, runs(a=[0.6] * 4, b=[0.5] * 4), "paper").word == "holds"


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
margin = -60.0
[claims.learns-not]
claim = "Learning does harm."
source = "Tab. 1"
recipe = "table1"
above = ["quick"]
below = ["none"]
direction = "less"
margin = -60.0
[claims.chance]
claim = "Without learning it is better than chance."
source = "Tab. 1"
recipe = "table1"
above = ["none"]
margin = 10.0
"""


def test_seeds_are_added_until_a_claim_is_decided(tmp_path, monkeypatch, capsys):
    """Margins far from the effect are decided at the first look; a cell that is about at chance gets more seeds."""
    (tmp_path / "table1.toml").write_text(TOY)
    (tmp_path / "toy.toml").write_text(CLAIM)
    monkeypatch.setattr(files, "recipes", lambda: {"toy/table1": tmp_path / "table1.toml"})
    monkeypatch.setattr(files, "claim_files", lambda: {"toy": tmp_path / "toy.toml"})
    out, docs = tmp_path / "runs", tmp_path / "docs"
    given = ["claims", "--json", "--out", str(out), "--docs", str(docs), "--called", "Toys & more"]
    assert main([*given, "--no-run"]) == 0
    assert {each["reason"] for each in json.loads(capsys.readouterr().out)["verdicts"]} == {
        "no finished run (quick, none)", "no finished run (none)",
    }  # fmt: skip
    assert main([*given, "--seeds", "6", "--engine", "local", "--track", "none"]) == 0
    learns, harm, same = json.loads(capsys.readouterr().out)["verdicts"]
    assert learns["effect"] == harm["effect"] > 10 and learns["seeds"] == harm["seeds"] == 4 and learns["paper"] == 50.0
    assert (learns["verdict"], harm["verdict"]) == ("holds", "does not hold")
    assert (same["verdict"], same["seeds"], same["effect"]) == ("undecided", 6, pytest.approx(10, abs=9))
    names = {cell: sorted(path.name for path in (out / "toy" / "small" / cell).iterdir()) for cell in ("quick", "none")}
    assert names == {"quick": [f"seed-{n}" for n in range(4)], "none": [f"seed-{n}" for n in range(6)]}
    page = (docs / "claims" / "toy.md").read_text()
    assert "10 runs" in page and "one round" in page and "| **holds** | Learning helps. (Tab. 1) |" in page
    # again without running: the same files; a run that was changed is refused
    before = {path: path.read_bytes() for path in docs.rglob("*.svg")}
    assert main([*given, "--no-run"]) == 0
    assert json.loads(capsys.readouterr().out)["verdicts"][0]["effect"] == learns["effect"]
    assert {path: path.read_bytes() for path in docs.rglob("*.svg")} == before and len(before) == 1
    assert len(list((docs / "claims" / "results").iterdir())) == 1
    (tmp_path / "table1.toml").write_text(TOY.replace("hidden = 8", "hidden = 9"))
    assert main([*given, "--no-run"]) == 2
    assert "other settings" in capsys.readouterr().err


def test_a_cell_that_fails_does_not_keep_the_others_from_running(tmp_path, monkeypatch, capsys):
    (tmp_path / "table1.toml").write_text(TOY.replace("[cells.quick]", "[cells.quick]\ntopology.per_round = 3"))
    (tmp_path / "toy.toml").write_text(CLAIM)
    monkeypatch.setattr(files, "recipes", lambda: {"toy/table1": tmp_path / "table1.toml"})
    monkeypatch.setattr(files, "claim_files", lambda: {"toy": tmp_path / "toy.toml"})
    out = tmp_path / "runs"
    assert main(["claims", "--json", "--out", str(out), "--engine", "local", "--track", "none", "--seeds", "1"]) == 0
    told = capsys.readouterr()
    assert "toy/table1, quick/seed-0: topology.per_round = 3, but 2 clients take part" in " ".join(told.err.split())
    reasons = [each["reason"] for each in json.loads(told.out)["verdicts"]]
    assert reasons == ["not run: it failed (quick)"] * 2 + ["the first look is after 4 seeds"]
    assert (out / "toy/small/none/seed-0/summary.json").is_file()


def test_the_pages_in_the_docs_are_made_of_their_results():
    docs = Path(__file__).parents[2] / "docs"
    made = pages(read_results(docs))
    stale = [path for path, text in made.items() if (docs / path).read_text() != text]
    assert stale == [], "run: wayfare claims --no-run --docs docs, or papers.claims_pages.write_pages"
    assert {f"claims/{path.name}" for path in (docs / "claims").glob("*.*")} == set(made) - {"claims.md"}


def test_a_file_of_results_is_only_data(tmp_path):
    """It names no page elsewhere, holds what it must, and puts no HTML on the pages."""
    (source,) = list((Path(__file__).parents[2] / "docs/claims/results").glob("fedtour-*"))
    content = json.loads(source.read_text())
    file = tmp_path / "claims" / "results" / "x.json"
    file.parent.mkdir(parents=True)
    setting, first = content["setting"], content["verdicts"][0]
    for wrong in (
        {"setting": setting | {"publication": "../../elsewhere"}}, {"setting": setting | {"title": 3}},
        {"verdicts": [{}]}, {"verdicts": [first | {"verdict": "perfect"}]}, {"verdicts": [first | {"seeds": "x"}]},
        {"verdicts": 3}, {"setting": None},
    ):  # fmt: skip
        file.write_text(json.dumps(content | wrong))
        with pytest.raises(DataError, match=r"x\.json.*not results of"):
            read_results(tmp_path)
    evil = "<script>alert(1)</script>\x1b[2J"
    texts = dict.fromkeys(("title", "called", "data", "settings", "only"), evil)
    rows = [first | dict.fromkeys(("claim", "source", "reason", "note", "pair", "unit"), evil)]
    file.write_text(json.dumps({"setting": setting | texts, "verdicts": rows}))
    made = pages(read_results(tmp_path))
    assert not any("<script" in text or "\x1b" in text for text in made.values())


def test_newer_results_replace_older_ones_claim_by_claim():
    """And a picture is well-formed, with what the claim says on the right."""

    def verdict(word, effect, **more):
        made = Verdict(
            claim(id=more.pop("id", "p/x"), **more), word, Estimate(effect, effect - 1, effect + 1, 4, 0.5), 2.0
        )
        return made.as_dict()

    def setting(**more):
        about = {"publication": "p", "title": "A paper", "called": "The town", "date": "2026-01-02", "scale": "small",
                 "data": "the town", "settings": "small ones", "runs": 3, "seconds": 60.0}  # fmt: skip
        return Setting(**about | more)

    old = (verdict("undecided", 0.5), verdict("holds", 5.0, id="p/y", claim="C < D & E."))
    results = [
        ClaimResults(setting(date="2026-01-03", rule="three seeds"), old),
        ClaimResults(setting(only="p/x"), (verdict("does not hold", -3.0),)),
        ClaimResults(setting(called="MSLS"), (verdict("untested", 0.0),)),
    ]
    made = pages(sorted(results, key=lambda each: each.setting.rule == "sequential"))
    assert "| [p](claims/p.md) | The town | 2 of 2 | 1 | 1 | 0 | 0 | 1 | 2026-01-03 |" in made["claims.md"]
    text = made["claims/p.md"]
    assert "| **does not hold** | A beats B. (Tab. 1) | -3.0000 [-4.0000, -2.0000] | +2.0000 | 4<sup>2</sup> |" in text
    assert "undecided |" not in text and "by the earlier rule, with three seeds" in text and "only `p/x`" in text
    circles = {
        each.get("cx"): each
        for each in ElementTree.fromstring(made["claims/p-the-town.svg"]).iter()
        if "cx" in each.attrib
    }
    effects = [float(x) for x in circles if x != "22"]
    assert effects[0] > 620 > effects[1]  # 5 is on the side of the claim, -3 is not; the middle is at 620
