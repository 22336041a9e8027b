"""The partition by owner: a column of a table, a folder for each person, and partitions as CSV."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from wayfare import Experiment
from wayfare.cli import main
from wayfare.core.errors import ConfigError, DataError
from wayfare.core.protocols import SampleFiles
from wayfare.core.seeds import rng_for
from wayfare.objects.data.folder import ClassFolders
from wayfare.objects.models import CnnClassifier
from wayfare.objects.task import Objects
from wayfare.partition.column import Column, as_csv, from_csv
from wayfare.partition.file import File
from wayfare.partition.random import Random


def held(split):
    return [sorted(split[at].tolist()) for at in range(len(split))]


@pytest.fixture
def people(tmp_path, monkeypatch) -> Path:
    """Anna and Ben each have houses and trees, in folders of their own."""
    monkeypatch.setenv("WAYFARE_CACHE", str(tmp_path / "cache"))
    for number, (who, what) in enumerate((w, k) for w in ("anna", "ben") for k in ("house", "tree")):
        folder = tmp_path / "photos" / who / what
        folder.mkdir(parents=True)
        for photo in range(4 + number):
            Image.new("RGB", (8, 8), (40 * number, 20 * photo, 0)).save(folder / f"{who}{what}{photo}.png")
    return tmp_path / "photos"


def test_owners_of_a_column(tmp_path):
    (tmp_path / "meta.csv").write_text("file;photographer\n1.jpg;ben\nx/2.jpg;anna\n3.jpg;ben\n4.jpg;\n")
    files = SampleFiles(tmp_path, ("1.jpg", "x/2.jpg", "3.jpg", "4.jpg", "5.jpg"))
    split = Column("photographer")(files, rng_for(0))
    assert split.provenance["owners"] == ["anna", "ben"] and split.provenance["unowned"] == 2
    assert held(split) == [[1], [0, 2]]
    assert held(Column("photographer", least=2)(files, rng_for(0))) == [[0, 2]]
    with pytest.raises(ConfigError, match="did you mean 'photographer'"):
        Column("fotographer")(files, rng_for(0))
    with pytest.raises(DataError, match="nobody has 3 samples"):
        Column("photographer", least=3)(files, rng_for(0))


def test_a_folder_for_each_person(people):
    task = Objects(ClassFolders(str(people), image_size=8), CnnClassifier(width=2, hidden=2))
    assert task.classes == ("house", "tree")
    experiment = Experiment(task, Column())
    split = experiment.split()
    files = task.source("files").files
    assert split.provenance["owners"] == ["anna", "ben"] and len(files) == task.samples == 18
    for at, who in enumerate(("anna", "ben")):
        assert {files[sample].split("/")[0] for sample in split[at]} == {who}
    labels = [task.labels[sample] for sample, file in enumerate(files) if "/tree/" in file]
    assert set(labels) == {1}  # the files are in the order of the samples


def test_data_without_files_is_refused():
    with pytest.raises(ConfigError, match="needs data that is files: this data has none"):
        Experiment(partition=Column()).split()
    with pytest.raises(DataError, match="not in folders of several people"):
        Column()(SampleFiles(Path("x"), ("a.jpg", "b.jpg")), rng_for(0))


def test_partitions_are_written_and_read_as_csv(tmp_path):
    split = Random(2)(np.array([0, 1, 0, 1, 0]), rng_for(0))
    text = as_csv(split, SampleFiles(Path(), tuple("abcde")))
    assert text.decode().splitlines()[0] == "sample,client,file" and len(text.splitlines()) == 6
    (tmp_path / "split.csv").write_bytes(text)
    again = File(str(tmp_path / "split.csv"))(np.array([0, 1, 0, 1, 0]), rng_for(0))
    assert held(again) == held(split)
    mine = from_csv(b"client,sample\nben,3\nanna,0\nben,1\n", Path("mine.csv"), 5)
    assert held(mine) == [[1, 3], [0]] and mine.provenance["owners"] == ["ben", "anna"]
    for wrong in (b"file,client\na,b\n", b"sample,client\n5,a\n", b"sample,client\n1,a\n1,b\n", b"sample,client\n"):
        with pytest.raises(DataError, match=r"mine\.csv"):
            from_csv(wrong, Path("mine.csv"), 5)


def test_split_names_owners_and_saves_a_table(people, tmp_path, capsys):
    (tmp_path / "r.toml").write_text(
        f'[data]\nname = "folder"\npath = "{people}"\n[task]\nname = "objects"\n[partition]\nname = "column"\n'
    )
    assert main(["split", str(tmp_path / "r.toml"), "--save", str(tmp_path / "s.csv"), "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["provenance"]["owners"] == ["anna", "ben"] and "c0: anna" in err
    assert (tmp_path / "s.csv").read_text().splitlines()[1].split(",")[2].startswith("anna/")
