"""The command line's manners: examples in every help, what to do first, and suggestions for what is mistyped."""

import re
from pathlib import Path

import pytest
from PIL import Image

from command_lines import COMMANDS, lines_of, parsed
from wayfare.cli import main
from wayfare.cli.help import HEADINGS

CHEAP = {"resume", "report", "compare", "list", "split", "explain-traffic", "claims", "data check", "data show"}
NOT_CHEAP = {"wayfare claims --only 'fedvpr/gem-*' --seeds 9", "wayfare resume runs/mine --rounds 100"}


def shown(capsys, *arguments):
    """Exit status, and all that is printed, without frames."""
    status = main(list(arguments))
    out, err = capsys.readouterr()
    return status, re.sub(r"[│╭╮╰╯─]", " ", out + err)


def examples(capsys, name):
    """As they stand in the help of a terminal 80 characters wide."""
    status, text = shown(capsys, *name.split(), "--help")
    assert status == 0
    _, heading, after = text.partition("Examples")
    assert heading, f"`wayfare {name} --help` has no examples"
    return [line.strip() for line in after.splitlines() if line.strip()]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_examples_that_parse(name, capsys):
    for line in examples(capsys, name):
        assert f"{line} ".startswith(f"wayfare {name} "), f"{line!r} is cut, or of another command"
        (words,) = lines_of(line)
        parsed(words)


def test_every_command_stands_under_a_heading():
    under = {command for commands in HEADINGS.values() for command in commands}
    assert under == {name.split()[0] for name in COMMANDS}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_argument_and_option_is_explained(name):
    silent = [parameter.name for parameter in COMMANDS[name].params if not getattr(parameter, "help", None)]
    assert not silent


@pytest.mark.parametrize("name", COMMANDS)
def test_help_is_shown_as_it_is_written(name, capsys):
    """Names of tables in brackets are no markup, and paragraphs are wrapped as the terminal is wide."""
    _, text = shown(capsys, *name.split(), "--help")
    words = " ".join(text.split())
    for parameter in COMMANDS[name].params:
        for table in re.findall(r"\[(?!bold|/bold)[a-z]+\]", getattr(parameter, "help", None) or ""):
            assert table in words
    for paragraph in re.sub(r"\[/?bold\]", "", COMMANDS[name].help or "").replace("\\[", "[").split("\n\n"):
        assert " ".join(paragraph.split()) in words
        assert "\n" not in paragraph


def test_cheap_examples_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("os.cpu_count", lambda: 1)  # no workers
    for run in ("mine", "other"):
        assert main(["run", "quickstart", "--rounds", "1", "--out", f"runs/{run}"]) == 0
    for photo in ("my-photos/house/1.png", "my-photos/tree/1.png", "my-town/house/1.png", "my-town/tree/1.png"):
        Path(photo).parent.mkdir(parents=True)
        Image.new("RGB", (32, 32), "red").save(photo)
    Path("my-shop").mkdir()
    Image.new("RGB", (32, 32), "red").save("my-shop/1.jpg")
    Path("my-shop/things.csv").write_text("photo,title,kind\n1.jpg,a red thing,thing\n")
    capsys.readouterr()
    tried = [line for name in sorted(CHEAP) for line in examples(capsys, name) if line not in NOT_CHEAP]
    for line in tried:
        (words,) = lines_of(line)
        status, text = shown(capsys, *words[1:])
        assert status == 0, f"{line}: {text}"
    assert len(tried) >= 14


def test_alone_it_says_what_to_do_first(capsys):
    status, text = shown(capsys)
    assert status in (0, 2)
    first = text[text.index("Start here:") : text.index("Options")]
    lines = [re.split(r"\s{2,}", line.strip())[0] for line in first.splitlines() if "wayfare" in line]
    assert lines[:3] == ["wayfare demo", "wayfare init DIR", "wayfare run quickstart"]
    for line in lines[:3]:
        parsed(lines_of(line)[0])


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("rnu quickstart", "run"),
        ("data chek .", "check"),
        ("federate jion", "join"),
        ("run quickstart --roudns 3", "--rounds"),
        ("run quikstart", "quickstart"),
        ("list strategie", "strategies"),
        ("town here --size smal", "small"),
        ("town here --only mslss", "msls"),
        ("split quickstart --set trainin.lr=1", "training"),
        ("split quickstart --set training.lrr=1", "lr"),
        ("split quickstart --set strategy.nam=fedavg", "name"),
        ("split quickstart --set model.widht=3", "width"),
        ("split quickstart --set strategy.name=fedporx", "fedprox"),
        ("split quickstart --set strategy.name=SCAFFOLD", "scaffold"),
        ("split quickstart --set task.name=object", "objects"),
        ("split quickstart --set partition.name=dirichle", "dirichlet"),
        ("split quickstart --set topology.name=servr", "server"),
        ("split tour --set exchange.name=gosip", "gossip"),
        ("split quickstart --set training.optimizer=adm", "adam"),
        ("split quickstart --set device=cpuu", "cpu"),
        ("run quickstart --engine loacl", "local"),
        ("run quickstart --engine local --rounds 1 --track tensorbord", "tensorboard"),
        ("run quickstart --engine local --rounds 1 --set evaluation.monitor=test/acuracy", "test/accuracy"),
        ("reproduce quickstart --cells fedawg", "fedavg"),
        ("claims --list --paper fedvrp", "fedvpr"),
        ("claims --list --only fedvpr/gem-above-mack", "fedvpr/gem-above-mac"),
    ],
)
def test_what_is_mistyped_gets_one_suggestion(line, meant, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    status, text = shown(capsys, *line.split())
    assert status == 2, text
    (asked,) = re.findall(r"did you mean[^?]*\?", " ".join(text.split()), re.IGNORECASE)
    assert f"'{meant}'" in asked, text
