"""What must still be as it was for a run to be continued: its experiment, its record, its data.

Other data is refused, saying what differs, unless that is allowed; other code is noted in the next round.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from wayfare.core import manifest
from wayfare.core.errors import ConfigError, StoreError
from wayfare.core.store import Store
from wayfare.experiment import Experiment
from wayfare.recipe import flatten

CHANGES = ("data", "memory")  # what a run can be continued without
_READ_FROM = ("data", "model", "task", "topology", "exchange", "clock")  # sections whose settings may name files
_NUMBER = (int, float)
# what a line of rounds.jsonl must hold for a run to continue after it, and what is in it
_LINE: dict[str, Any] = {
    "experiment": str, "seconds": _NUMBER, "void": bool, "bytes_up": int, "bytes_down": int,
}  # fmt: skip
_LISTS = {"kept": str, "cold": str, "refused": dict}
_OPTIONAL = {"warnings": str, "changed": str, "forgotten": str}


# ---- the experiment


def fingerprint(table: Mapping[str, Any]) -> str:
    """What ties a round to its experiment: all of its text but the number of rounds, which may grow."""
    settings = {key: value for key, value in table.items() if key != "rounds"}
    return hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode()).hexdigest()


def early_fingerprint(experiment: Experiment) -> str:
    """What earlier versions recorded instead: the settings that are not as by default."""
    settings = replace(experiment, rounds=1).chosen()
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


def rebuilt(table: dict[str, Any], store: Store) -> Experiment:
    """The experiment of a run that may be an older version's."""
    try:
        return Experiment.from_table(table)
    except ConfigError as error:
        then, now = _made_by(store), version("wayfare")
        advice = f". Wayfare {then} made this run, and this is {now}: resume it with {then}, or start a new run"
        where = store.folder / "experiment.toml"
        raise ConfigError(f"{where}: {error}{advice if then and then != now else ''}") from error


def _made_by(store: Store) -> str:
    """The version that last worked on a run; "" if that is not known."""
    return str((store.read_json("environment.json") or {}).get("wayfare", ""))


def check_experiment(experiment: Experiment, text: str, store: Store) -> None:
    """The rounds so far must be of this experiment: going on with another would mix two runs."""
    if not store.lines:
        return
    last, now, path = store.lines[-1], version("wayfare"), store.folder / "experiment.toml"
    if last["experiment"] in (fingerprint(tomllib.loads(text)), early_fingerprint(experiment)):
        return
    then = _made_by(store)
    if "manifest" in last or then in ("", now):
        raise StoreError(f"{path} was changed since round {last['round']}: restore it, or start a new run")
    raise StoreError(
        f"{path} was changed since round {last['round']}, or means something else to Wayfare {now} than to {then}, "
        f"which made that round (a default has changed): resume with Wayfare {then}, or start a new run"
    )


# ---- the record


def check_lines(store: Store) -> None:
    """Lines may have been edited by hand: each must hold what is read from it later."""
    for number, line in enumerate(store.lines, start=1):
        if wrong := _wrong_field(line):
            raise StoreError(
                f"{store.folder / 'rounds.jsonl'}:{number}: field {wrong!r} is missing or is not what Wayfare writes: "
                "restore it from a copy, or delete this line and those after it"
            )


def _wrong_field(line: dict[str, Any]) -> str:
    """The first field that is not as it should be; "" if all are."""
    for key, kind in _LINE.items():
        if not isinstance(line.get(key), kind):
            return key
    for key, kind in (_LISTS | {key: kind for key, kind in _OPTIONAL.items() if key in line}).items():
        if not isinstance(line.get(key), list) or not all(isinstance(item, kind) for item in line[key]):
            return key
    metrics = line.get("metrics")
    if not isinstance(metrics, dict) or not all(isinstance(value, _NUMBER) for value in metrics.values()):
        return "metrics"
    return ""


# ---- the data and the code


@dataclass
class ManifestCheck:
    """What a run is made with now, and what of it is not as it was."""

    manifest: dict[str, Any]
    ties: dict[str, str]  # what each round from now on says of data and code
    changed: list[str] = field(default_factory=list)


def files_of(experiment: Experiment) -> dict[str, Path]:
    """The files and folders that the experiment is read from, by the setting that names them."""
    table = tomllib.loads(experiment.to_toml())
    return manifest.located(dict(flatten({key: value for key, value in table.items() if key in _READ_FROM})))


def compare(
    store: Store, experiment: Experiment, partition: bytes, is_other_data_allowed: bool, warn: Callable[[str], None]
) -> ManifestCheck:
    """Compare with what the last round was made with; nothing is written."""
    now = manifest.make(experiment.task.data_digest(), files_of(experiment), partition)
    (code,) = now["code"]
    seal, last = manifest.seal_of(now), store.lines[-1] if store.lines else {}
    found = ManifestCheck(now, {"manifest": seal, "code": code})
    known = store.read_json(manifest.FILE)
    if known is not None and "manifest" in last and last["manifest"] != manifest.seal_of(known):
        known = None  # damaged, or another run's
    if last and "manifest" not in last:
        warn("the earlier rounds did not record their data, so it cannot be compared")
    elif last and last["manifest"] != seal:
        found.changed.append(_other_data(store.folder, known, now, is_other_data_allowed))
    elif last and known is None:
        warn(f"{store.folder / manifest.FILE} was missing or damaged: it is made again")
    codes = manifest.as_dict((known or {}).get("code"))
    if last.get("code", code) != code:
        found.changed.append(manifest.code_difference(codes.get(str(last["code"])), now["code"][code]))
    now["code"] = {**codes, **now["code"]}
    return found


def _other_data(folder: Path, known: dict[str, Any] | None, now: dict[str, Any], is_allowed: bool) -> str:
    """What differs, in words; StoreError unless that is allowed."""
    lost = f"{manifest.FILE}, which could say how, is missing or damaged"
    what = lost if known is None else "; ".join(manifest.differences(known, now))
    if not is_allowed:
        raise StoreError(
            f"the data of {folder} are not those of its rounds so far: {what}. Restore them, or start a new run. To "
            f"continue with them as they are, which gives another model: wayfare resume {folder} --allow-changed data"
        )
    return f"the data is not that of the earlier rounds: {what}"
