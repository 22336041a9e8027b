"""Photos for every device, one recipe, and an invitation for each: what the real programs and the simulation share."""

import shutil

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

from wayfare.experiment import Experiment
from wayfare.meeting.invitation import GroupGuest
from wayfare.meeting.invitation import invite as write_invitation

RECIPE = """
rounds = 0
[data]
name = "folder"
path = "{root}/union"
image_size = 16
names = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]
[model]
name = "cnn"
width = 16
hidden = 64
[task]
name = "objects"
[partition]
name = "dirichlet"
clients = {clients}
alpha = 0.5
min_size = 12
[strategy]
name = "fedavg"
weighting = "uniform"
[topology]
name = "encounters"
traces = "{root}/contacts.dat"
probe = 200
judge = 1
[exchange]
name = "guarded"
predict_with = "overlap"
limit = 40
reserve = 10
[training]
epochs = 8
batch_size = 16
optimizer = "adam"
lr = 0.003
[evaluation]
every = 0
holdout = 0.0
"""


def write_world(root, clients):
    """The handwritten digits of scikit-learn: a folder for each device, and one to measure with."""
    digits = load_digits()
    for number, pixels in enumerate(digits.images):
        file = root / "union" / ("train" if number < 1600 else "test") / str(digits.target[number]) / f"{number:04}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray((pixels * 15.9).astype(np.uint8)).convert("RGB").resize((16, 16)).save(file)
    (root / "tour.toml").write_text(RECIPE.format(root=root, clients=clients))
    pairs = [(min(2 * k, clients - 2), min(2 * k + 1, clients - 1)) for k in range((clients + 1) // 2)]
    (root / "contacts.dat").write_text("".join(f"{30 * k} {a} {b}\n" for k, (a, b) in enumerate(pairs)))
    experiment = Experiment.read(root / "tour.toml")
    files, split = experiment.task.source("files").files, experiment.split()
    held = {split.id(place): np.sort(split[place]) for place in range(clients)}
    for folder, positions in {**held, "probe": np.sort(experiment.reserved()[:200])}.items():
        for position in positions:
            source = root / "union" / files[position]
            target = root / folder / source.parent.name / source.name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)
    return experiment, list(held)


def invite(root, experiment, name, peers, published, group="group"):
    """The invitation of a device."""
    out = root / f"{name}.{group}.invite"
    write_invitation(
        root / group, GroupGuest(name=name, experiment=experiment, peers=peers, published=published), 30, out
    )
    return out
