"""`export`: a finished run for other programs."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, Literal, get_args

from wayfare.core import disk
from wayfare.core.errors import ConfigError, DataError, unknown
from wayfare.core.text import printable
from wayfare.downloads import onnxruntime_web
from wayfare.exporting import agreement
from wayfare.exporting.onnx_file import OnnxNetwork, round_weights, write_onnx
from wayfare.exporting.packing import Pack
from wayfare.exporting.place_files import write_places
from wayfare.exporting.pte_file import PteNetwork, write_pte
from wayfare.exporting.site import WebSite, write_site
from wayfare.exporting.word_files import write_search
from wayfare.finished import MANIFEST, ClassifierRun, FinishedRun, load
from wayfare.hashing.finished import HashingRun
from wayfare.hashing.portable_sides import portable_sides
from wayfare.hashing.search import SearchIndex, is_search_index
from wayfare.io.weights import file_sha256
from wayfare.places.finished import PlacesRun, thresholds_of
from wayfare.places.index import Index
from wayfare.portable import PortableInput, PortablePart

Target = Literal["weights", "onnx", "executorch", "web"]
Progress = Callable[[str, int, int], None]
FORMAT = 1
_UNFINISHED = {"format": FORMAT, "unfinished": True}  # the manifest until all else is written
_CHECKED, _CHECKED_INT8 = 32, 300  # inputs of the run's own data that are compared
_ALIKE = 1e-3  # how far an output may be from the run's own, as a part of the largest


@dataclass(frozen=True)
class Exported:
    """What `export` wrote."""

    folder: Path
    target: Target
    manifest: dict[str, Any]
    files: tuple[str, ...]
    notes: tuple[str, ...] = field(default_factory=tuple)

    @property
    def bytes(self) -> int:
        """Of all files together."""
        return sum((self.folder / name).stat().st_size for name in self.files)


def export(
    run: str | PathLike[str],
    to: Target,
    out: str | PathLike[str] | None = None,
    *,
    int8: bool = False,
    index: str | PathLike[str] | None = None,
    pictures: int = 128,
    data: str | PathLike[str] | None = None,
    progress: Progress = lambda *_: None,
) -> Exported:
    """Write a finished run for other programs, into RUN/export-TO by default.

    `to` is "onnx", "executorch", "web", or "weights" (safetensors, for torch). `int8` rounds the weights of ONNX files
    to 8 bits and measures what that costs. `index` is for "web": RUN/index by default, with small `pictures` of so many
    pixels; 0 leaves them out. `data` says where the run's data is now, if it was moved.
    """
    if to not in get_args(Target):
        raise unknown("target", to, get_args(Target), "to")
    if int8 and to not in ("onnx", "web"):
        raise ConfigError(f"int8 is for onnx and web; an export to {to} has float32 weights")
    if pictures and not 16 <= pictures <= 1024:
        raise ConfigError(f"pictures = {pictures}: expected 16 to 1024 pixels, or 0 for none")
    folder = Path(run) / f"export-{to}" if out is None else Path(out)
    found = load(run, data, device="cpu")
    _check_folder(folder)
    if to == "weights":
        found.export(folder)
        return Exported(folder, to, json.loads((folder / MANIFEST).read_text()), _written(folder, []))
    runtime = onnxruntime_web.needed() if to == "web" else Path()
    opened = _index_of(found, index) if to == "web" else None
    parts = portable_sides(opened.model, found.task) if isinstance(opened, SearchIndex) else found.portable()
    models = folder / "model" if to == "web" else folder
    models.mkdir(parents=True, exist_ok=True)
    disk.write(models / MANIFEST, json.dumps(_UNFINISHED).encode())
    described, notes = [], list[str]()
    for number, part in enumerate(parts, start=1):
        progress(f"writing the network for {part.name}s", number, len(parts))
        described.append(_write_part(part, models, to, int8))
        notes += _said(part, described[-1])
    thresholds = thresholds_of(opened) if isinstance(opened, Index) else found.thresholds()
    manifest = found.described() | {
        "format": FORMAT, "target": to, "weights": "int8" if int8 else "float32", "parts": described,
        "thresholds": thresholds,
    }  # fmt: skip
    disk.write(models / MANIFEST, json.dumps(manifest, indent=1, ensure_ascii=False).encode())
    if to == "web":
        pack = Pack(pictures, progress)
        site = _site(found, described, opened, folder, pack)
        if pack.shown:  # an index of somebody else may name photos that its owner did not mean to give away
            inside = os.path.commonpath([file.resolve().parent for file in pack.shown])
            notes.append(f"it holds small pictures of {len(pack.shown):,} photos in {printable(inside, 1000)}")
        return Exported(folder, to, manifest, tuple(write_site(site, folder, runtime)), notes=tuple(notes))
    return Exported(folder, to, manifest, _written(folder, described), notes=tuple(notes))


def _check_folder(folder: Path) -> None:
    """An export replaces an export, and nothing else."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise ConfigError(f"{folder} is a file: choose another folder with --out")
    is_site = _is_manifest(folder / "model" / MANIFEST)
    if not is_site and not _is_manifest(folder / MANIFEST) and any(folder.iterdir()):
        raise ConfigError(f"{folder} is not empty and holds no export: choose another folder with --out")
    if is_site:
        shutil.rmtree(folder / "data", ignore_errors=True)


def _is_manifest(file: Path) -> bool:
    """Whether an export wrote it, finished or not."""
    try:
        found = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(found, dict) and ("wayfare" in found or found == _UNFINISHED)


def _written(folder: Path, described: list[dict[str, Any]]) -> tuple[str, ...]:
    names = {MANIFEST, *(name for part in described for name in (part["file"], *part["files"]))}
    if not described:
        names.add("model.safetensors")
    return tuple(sorted(names))


def _write_part(part: PortablePart, folder: Path, to: Target, int8: bool) -> dict[str, Any]:
    """Write a network, run it again from its file, and say how near it is to the run's own."""
    file = folder / f"{part.name}{'.pte' if to == 'executorch' else '.onnx'}"
    shapes = {each.name: [1, *each.shape[1:]] for each in part.inputs}
    if to == "executorch":
        write_pte(part, file)
        found = agreement.measured(part, PteNetwork(file), _CHECKED)
    else:
        write_onnx(part, file)
        network = OnnxNetwork(file)
        shapes = network.shapes
        found = agreement.measured(part, network, _CHECKED)
    if found.largest_difference > _ALIKE * max(1.0, found.largest):
        apart = f"{found.largest_difference:.2g}"
        raise ConfigError(f"{file.name} differs from the run's network by {apart}: it cannot be exported to {to}")
    said = {"agreement": agreement.as_dict(found)}
    if int8:
        said["float32_bytes"] = file.stat().st_size  # type: ignore[assignment]
        round_weights(file, file)
        loss = agreement.measured(part, OnnxNetwork(file), _CHECKED_INT8)
        if loss.on != "own data":
            raise DataError(
                "the loss of int8 is measured on the run's own data, which cannot be read",
                remedy="say where it is with --data, or leave out --int8",
            )
        said["int8_agreement"] = agreement.as_dict(loss)
    for name, content in part.files.items():
        disk.write(folder / name, content)
    return {
        "name": part.name, "file": file.name, "sha256": file_sha256(file), "bytes": file.stat().st_size,
        "files": sorted(part.files), "preparing": dict(part.preparing),
        "inputs": [_input(each, shapes) for each in part.inputs],
        "output": {"name": part.output, "meaning": _MEANINGS[part.output]}, **said,
    }  # fmt: skip


_MEANINGS = {
    "descriptor": "vectors that are near each other for photos of one place; compared by Euclidean distance",
    "logits": "one number for each class; softmax makes probabilities of them",
    "vector": "numbers whose signs are the code; scaled to length 1, less the centre of their kind, compared by cosine",
}


def _input(given: PortableInput, shapes: dict[str, list[int | str]]) -> dict[str, Any]:
    kind = str(given.example.dtype).removeprefix("torch.")
    return {"name": given.name, "shape": shapes[given.name], "type": kind}


def _said(part: PortablePart, described: dict[str, Any]) -> list[str]:
    near, size = described["agreement"], described["bytes"] / 2**20
    line = (
        f"{described['file']}: {size:.1f} MB; in float32 {near['same_first']:.0%} of the first answers for "
        f"{near['inputs']} inputs ({near['on']}) are the run's own, largest difference {near['largest_difference']:.1g}"
    )
    lines = [line]
    if loss := described.get("int8_agreement"):
        lines.append(
            f"  int8: {loss['same_first']:.1%} of the first answers for {loss['inputs']} inputs are the run's own, and "
            f"{loss['same_ten']:.1%} of the first ten"
        )
    return lines


# ---- the index of a site


def _index_of(found: FinishedRun, index: str | PathLike[str] | None) -> Index | SearchIndex | None:
    """The index that a page needs, which must be of this run's model."""
    if isinstance(found, ClassifierRun):
        if index is not None:
            raise ConfigError(f"{found.folder} tells classes apart: it needs no --index")
        return None
    folder = found.index_folder(index)
    if isinstance(found, PlacesRun):
        if not folder.is_dir():
            found.lacks_index(folder)
        opened = Index(folder, "cpu")
        if opened.facts.model != found.model.digest:
            raise _foreign(folder, opened.facts.run)
        return opened
    if isinstance(found, HashingRun):
        if not is_search_index(folder):
            found.lacks_index(folder)
        search = SearchIndex(folder, "cpu")
        if search.model.trained != found.found.record.model_sha256:
            raise _foreign(folder, search.model.name)
        return search
    found.portable()  # refuses
    raise ConfigError(f"a run of {found.task_name} cannot be exported as a page")


def _foreign(folder: Path, name: str) -> ConfigError:
    return ConfigError(f"{folder} was made by another model ({name}): index the photos with this run")


def _site(
    found: FinishedRun, described: list[dict[str, Any]], opened: Index | SearchIndex | None, folder: Path, pack: Pack
) -> WebSite:
    parts = {
        part["name"]: {"file": f"model/{part['file']}", "preparing": _placed(part["preparing"])} for part in described
    }
    title = found.found.record.name
    if isinstance(opened, Index):
        return WebSite(title, "places", parts, [], places=write_places(opened, folder, pack))
    if isinstance(opened, SearchIndex):
        search = write_search(opened, folder, pack)
        return WebSite(title, "search", parts, [], search=search, example=opened.example())
    return WebSite(title, "classes", parts, list(found.task.classes))


def _placed(preparing: dict[str, Any]) -> dict[str, Any]:
    """File names as a page finds them."""
    return preparing | ({"tokenizer": f"model/{preparing['tokenizer']}"} if "tokenizer" in preparing else {})
