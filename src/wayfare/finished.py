"""A finished run in use: the one object that `wayfare.load` gives, whatever the task.

    model = wayfare.load("runs/mine")
    model.predict("holiday.jpg")

Every run can `evaluate` and `export`, and has its `network`. A task names a class of its own in `Task.finished`, which
extends this one, says in `offers` what else can be done, and does it. Anything else is refused with that list.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from importlib.metadata import version
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, NoReturn, TypeVar
from warnings import warn

import numpy as np
import safetensors.torch
import torch
from torch import Tensor, nn

from wayfare.components import imported, name_of, parts_of
from wayfare.core import disk
from wayfare.core.bundle import digest, load_into
from wayfare.core.errors import ConfigError, DataError
from wayfare.core.protocols import Task
from wayfare.io.folders import photo_files
from wayfare.io.images import decode_all
from wayfare.io.pictures import Skipped
from wayfare.portable import PortablePart, as_input, picture_input, picture_preparing
from wayfare.trained import Trained, trained, untrained

Photos = str | PathLike[str] | Iterable[str | PathLike[str]]  # a file, a folder of them, or several
WEIGHTS, MANIFEST = "model.safetensors", "model.json"
Found = TypeVar("Found")
_ALWAYS = ("evaluate", "network", "export")
_TOGETHER = 64  # pictures that go through a network at once


def load(run: str | PathLike[str], data: str | PathLike[str] | None = None, device: str = "auto") -> FinishedRun:
    """The model of a finished run, ready for use; `data` says where its training data is now, if it was moved."""
    found = trained(run, Task, "", "using a run")
    if data is not None:
        found = _moved(found, str(data))
    cls: type[FinishedRun] = imported(found.task.finished)
    return cls(found, None if data is None else Path(data), device)


def _moved(found: Trained[Task], path: str) -> Trained[Task]:
    data = found.task.data if "data" in parts_of(type(found.task)) else None  # type: ignore[attr-defined]
    if data is None or "path" not in {each.name for each in fields(data)}:
        raise ConfigError(f"{found.record.path} learnt from data without a path: leave out data")
    task = replace(found.task, data=replace(data, path=path))  # type: ignore[type-var]
    return found._replace(task=task, experiment=replace(found.experiment, task=task))


class FinishedRun:
    """A finished run's model, and what can be done with it."""

    offers: ClassVar[tuple[str, ...]] = ()  # beside what every run offers

    def __init__(self, found: Trained[Any], moved_to: Path | None = None, device: str = "auto") -> None:
        self.found, self.task, self.folder, self.moved_to = found, found.task, found.record.path, moved_to
        self.device = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device

    def __repr__(self) -> str:
        return f"<a run of {self.task_name}, {self.folder}: it has {', '.join(self.methods)}>"

    @property
    def task_name(self) -> str:
        return name_of("task", self.task)

    @property
    def methods(self) -> tuple[str, ...]:
        """What can be done with this run."""
        return (*self.offers, *_ALWAYS)

    @property
    def metrics(self) -> dict[str, float]:
        """The figures that the run ended with."""
        return {name: value for name, value in self.found.record.final_metrics.items() if value is not None}

    @cached_property
    def trained_net(self) -> nn.Module:
        """The network as the task trains it, in evaluation mode."""
        net = untrained(self.found.experiment)
        load_into(net, self.found.weights)
        return net.to(self.device).eval()

    @property
    def network(self) -> nn.Module:
        """A plain torch module; `export` says what it expects."""
        return self.trained_net

    def inputs(self) -> dict[str, Any]:
        """What the network expects, for `export`."""
        return {}

    # ---- what every run offers

    def evaluate(self, data: str | PathLike[str] | None = None) -> dict[str, float]:
        """Metrics on the run's own test set, or on all of a folder of yours in the same layout."""
        if data is None:
            return dict(self.task.evaluate(self.trained_net, None))
        task = self.on_folder(str(data))
        if task.terms != self.task.terms:
            raise ConfigError(
                f"{data}: its classes are not those that {self.folder} was trained on: expected "
                f"{_listed(self.task.terms)}, found {_listed(task.terms)}"
            )
        if not task.samples:
            raise DataError("nothing in it to evaluate on", str(data))
        return dict(task.evaluate(self.trained_net, np.arange(task.samples)))

    def on_folder(self, path: str) -> Task:
        """The task on a folder of which everything is evaluated on."""
        task: Task | None = self.task.fixed().on_folder(path)
        if task is None:
            raise ConfigError(
                f"{self.folder} was trained on data that is not a folder, so it cannot be evaluated on one: "
                "evaluate() without data uses its own test set"
            )
        return task

    def export(self, folder: str | PathLike[str]) -> Path:
        """Write the network's weights (model.safetensors) and what it expects (model.json) into a folder.

        `wayfare.exporting.export` writes it for other programs: ONNX, ExecuTorch, a web page.
        """
        out, weights = Path(folder), _as_stored(self.network)
        if (out / "experiment.toml").exists():
            raise ConfigError(f"{out} is the folder of a run, whose model would be replaced: choose another folder")
        out.mkdir(parents=True, exist_ok=True)
        disk.write(out / WEIGHTS, safetensors.torch.save(weights))
        manifest = self.described() | {
            "input": self.inputs(),
            "weights": WEIGHTS,
            "weights_sha256": digest(weights),
            "recipe": self.found.record.recipe,
        }
        disk.write(out / MANIFEST, json.dumps(manifest, indent=1, ensure_ascii=False).encode())
        return out

    def described(self) -> dict[str, Any]:
        """What every manifest of an export says of the run."""
        return {
            "task": self.task_name,
            "run": self.found.record.name,
            "wayfare": version("wayfare"),
            "classes": list(self.task.classes),
            "metrics": self.metrics,
        }

    def portable(self) -> tuple[PortablePart, ...]:
        """The networks as other programs can run them."""
        raise ConfigError(
            f"a run of {self.task_name} cannot be exported: its network takes more than a picture or a text"
        )

    def thresholds(self) -> dict[str, Any]:
        """For a manifest: how an answer's confidence is computed, and from where on it counts."""
        return {}

    # ---- what some offer

    def predict(self, photos: Photos) -> Any:
        """What is in a photo, or in each of several."""
        self.refuse("predict")

    def embed(self, photos: Photos) -> np.ndarray:
        """A vector for each photo, float32 (n, d), in their order; a photo that is named twice has two."""
        self.refuse("embed")

    def index(self, photos: str | PathLike[str] | None = None, out: str | PathLike[str] | None = None) -> Any:
        """Put photos into an index, RUN/index by default, to be found by `locate` or `search`.

        Without photos: the run's own data.
        """
        self.refuse("index")

    def locate(self, photos: Photos, k: int = 5) -> Any:
        """Where photos were taken, by the index."""
        self.refuse("locate")

    def search(self, words: str = "", photo: str | PathLike[str] | None = None, k: int = 10) -> Any:
        """What the index has for some words, or for a photo."""
        self.refuse("search")

    def graph(self, photos: Photos, top: int = 10) -> Any:
        """How the things in photos relate."""
        self.refuse("graph")

    def refuse(self, method: str) -> NoReturn:
        raise ConfigError(f"a run of {self.task_name} has no .{method}; it has {', '.join(self.methods)}")

    def lacks_index(self, folder: Path) -> NoReturn:
        raise DataError("there is no index yet", folder, remedy="make one first: .index(photos), or `wayfare index`")

    def one_or_all(self, photos: Photos, found: list[Found], skipped: Sequence[Skipped]) -> Found | list[Found]:
        """The answer for one photo, which must be readable; or the answers for several, with a warning for others."""
        if isinstance(photos, str | PathLike) and not Path(photos).is_dir():
            if skipped:
                raise DataError(skipped[0].reason.removeprefix(f"{skipped[0].file}: "), skipped[0].file)
            return found[0]
        for item in skipped:
            warn(f"left out {item.file}: {item.reason}", stacklevel=3)
        return found

    def index_folder(self, out: str | PathLike[str] | None = None) -> Path:
        """Where the index is."""
        return self.folder / "index" if out is None else Path(out)


def _as_stored(net: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach().cpu().contiguous().clone() for name, tensor in net.state_dict().items()}


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(map(repr, names[:8])) + (", ..." if len(names) > 8 else "")


# ---- tasks with classes


@dataclass(frozen=True)
class Prediction:
    """What a classifier says about a photo."""

    photo: Path
    label: str
    score: float  # the probability that it gives the label
    scores: dict[str, float] = field(repr=False)  # of all classes, the most probable first


class ClassifierRun(FinishedRun):
    """A run of a task that tells classes apart. A subclass says what pictures its network takes."""

    offers: ClassVar[tuple[str, ...]] = ("predict", "embed")

    @cached_property
    def network(self) -> PictureClassifier:
        """Pictures (n, 3, height, width) with values from 0 to 1 -> logits (n, classes)."""
        return self.classifier().to(self.device).eval()

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of pictures as the network sees them."""
        raise NotImplementedError

    def classifier(self) -> PictureClassifier:
        raise NotImplementedError

    def inputs(self) -> dict[str, Any]:
        height, width = self.size
        return {"shape": ["n", self.network.channels, height, width], "colours": "RGB", "range": [0, 1]}

    def own_pictures(self, count: int) -> np.ndarray:
        """Some pictures of the run's test data, uint8 (n, height, width, channels)."""
        raise NotImplementedError

    def portable(self) -> tuple[PortablePart, ...]:
        own = lambda count: (as_input(self.own_pictures(count)),)  # noqa: E731
        inputs = (picture_input(self.size),)
        return (PortablePart("image", self.network.cpu(), inputs, "logits", picture_preparing(self.size), own=own),)

    def predict(self, photos: Photos) -> Prediction | list[Prediction]:
        """What is in a photo; for a folder or several photos a list, from which unreadable ones are left out."""
        return self.one_or_all(photos, *self.predict_files(photo_files(photos)))

    def predict_files(self, files: list[Path]) -> tuple[list[Prediction], list[Skipped]]:
        """What is in each photo that can be read, and which cannot."""
        found: list[Prediction] = []
        classes = self.task.classes
        logits, kept, skipped = self._through(files, self.network.forward, len(classes))
        for row, file in zip(torch.from_numpy(logits).softmax(1).tolist(), kept):
            order = sorted(range(len(classes)), key=lambda at: (-row[at], at))
            scores = {classes[at]: row[at] for at in order}
            found.append(Prediction(file, classes[order[0]], row[order[0]], scores))
        return found, skipped

    def embed(self, photos: Photos) -> np.ndarray:
        found, _, skipped = self._through(photo_files(photos), self.network.features, None)
        return whole(found, skipped)

    @torch.no_grad()
    def _through(self, files: list[Path], part: Any, width: int | None) -> tuple[np.ndarray, list[Path], list[Skipped]]:
        outputs: list[np.ndarray] = [] if width is None else [np.empty((0, width), np.float32)]
        kept: list[Path] = []
        skipped: list[Skipped] = []
        for start in range(0, len(files), _TOGETHER):
            some = files[start : start + _TOGETHER]
            images, places, broken = decode_all(some, self.size)
            skipped += broken
            kept += [some[at] for at in places]
            if len(images):
                pixels = torch.from_numpy(images).to(self.device).permute(0, 3, 1, 2).float().div_(255)
                outputs.append(part(pixels).float().cpu().numpy())
        return np.concatenate(outputs) if outputs else np.empty((0, 0), np.float32), kept, skipped


def whole(found: np.ndarray, skipped: list[Skipped]) -> np.ndarray:
    """Vectors, one for each photo asked for: an unreadable photo is an error, not a missing row."""
    if skipped:
        raise DataError(skipped[0].reason, skipped[0].file)
    return found


class PictureClassifier(nn.Module):
    """A trained classifier with all that stands before it: pictures from 0 to 1 -> logits.

    `before` is a frozen network that the classifier sees features of; without one it sees scaled pixels.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(
        self, net: nn.Module, scaling: tuple[tuple[float, ...], tuple[float, ...]], before: nn.Module | None = None
    ) -> None:
        super().__init__()
        self.net, self.before, self.channels = net, before, len(scaling[0])
        self.register_buffer("mean", torch.tensor(scaling[0]).view(1, -1, 1, 1))
        self.register_buffer("deviation", torch.tensor(scaling[1]).view(1, -1, 1, 1))

    def features(self, pictures: Tensor) -> Tensor:
        """What the last layer sees."""
        if self.channels == 1 and pictures.shape[1] == 3:
            pictures = pictures.mean(1, keepdim=True)
        seen = (pictures - self.mean) / self.deviation if self.before is None else self.before(pictures)
        features: Tensor = self.net.features(seen)  # type: ignore[operator]
        return features

    def forward(self, pictures: Tensor) -> Tensor:
        logits: Tensor = self.net.head(self.features(pictures))  # type: ignore[operator]
        return logits
