"""All methods of FedCAFE's tables on real fashion pairs: both directions, three code lengths, with floor and ceiling.

- types: 30 kinds of things, one for each pair, dealt to ten clients by Dirichlet 0.5 (as Tab. 3); over both bases;
- labels: kinds and colours, 45 labels, dealt out at random (as Tab. 2);
- parts: FedCAFE's parts one after the other on `types` (as Tab. 5).
The experiments are cells of recipes/fedcafe at small scale on these pairs. Kept apart are 1,000 pairs that ask; the
others are searched, and 4,000 of them learnt from. With --quick it is a made-up sample: the machinery, not the figures.
"""

from dataclasses import replace
from pathlib import Path

from rich.table import Table

from places_parts import common
from wayfare.io.archives import unpack
from wayfare.papers.paper import Scale
from wayfare.papers.plan import read_plan

RECIPES = Path(__file__).resolve().parents[2] / "recipes" / "fedcafe"
METHODS = {"centralised": "Centralised", "local": "Local", "fedavg": "FedAvg", "fedprox": "FedProx",
           "fedcmr": "FedCMR", "moon": "MOON", "fedproto": "FedProto", "plfedcmh": "PLFedCMH",
           "fedcafe": "FedCAFE"}  # fmt: skip
BITS = (16, 32, 64)
FORMS = {"types, DCMH": ("table3", "dcmh", "articleType:50"), "types, SHDCH": ("table3", "shdch", "articleType:50"),
         "labels, DCMH": ("table2", "dcmh", "articleType:50+baseColour:100")}  # fmt: skip
WAYS, OWN_PAIRS = ("MAP i2t", "MAP t2i"), ("R@1", "R@5", "R@10")
QUICK_METHODS, QUICK_FORMS = ("local", "fedavg", "fedcafe"), ("types, DCMH", "types, SHDCH")
RIVALS = ("fedavg", "fedprox", "local")  # that FedCAFE must be above


def experiments(quick, seeds, archive, out):
    """(form, cell, seed) -> the run's folder and its experiment; forms have some runs in common."""
    pairs = None if quick else _pairs(archive, out / "fashion")
    found = {}
    for form, (recipe, base, labels) in FORMS.items():
        if quick and form not in QUICK_FORMS:
            continue
        plan = _plan(recipe, pairs, labels, base)
        for method in QUICK_METHODS if quick else METHODS:
            for bits in BITS[:1] if quick else BITS:
                found[form, f"{method}-{bits}"] = _run(plan, base, f"{method}-{bits}")
    for base in ("dcmh",) if quick else ("dcmh", "shdch"):
        plan = _plan("table5", pairs, FORMS["types, DCMH"][2], base)
        for name in plan.experiments:
            found[f"parts, {base.upper()}", plan.cells[name].label] = _run(plan, base, name)
    if quick:
        found = {key: (run, replace(e, rounds=2)) for key, (run, e) in found.items()}
    seeded = range(seeds)
    return {(*key, s): (f"{run}/seed-{s}", e.with_seed(s)) for s in seeded for key, (run, e) in found.items()}


def _plan(recipe, pairs, labels, base):
    return read_plan(RECIPES / f"{recipe}.toml", Scale.small, None, _changes(pairs, labels, base))


def _run(plan, base, cell):
    """Below a base's folder as `wayfare claims --out` has it."""
    return f"{base}/{plan.folder.relative_to('runs')}/{cell}", plan.experiments[cell]


def _pairs(archive, folder):
    if not folder.exists():
        unpack(archive, folder)
    return next(folder.rglob("pairs.csv"))


def _changes(pairs, labels, base):
    # DCMH as recipes/fedcafe/table2 has it; SHDCH's own gamma, 10, holds codes of 16 bits to the signs they begin with
    weights = {"eta": 0.001} if base == "dcmh" else {"eta": 100.0, "gamma": 1.0}
    balance = {"task.base.name": base} | {f"task.base.{name}": value for name, value in weights.items()}
    if pairs is None:
        return {"data.name": "sample", "model.image": "file"} | balance
    return {"data.name": "table", "data.path": str(pairs), "data.labels": labels, "data.query": 1000,
            "data.train": 4000, "data.text": "productDisplayName", "data.photo": "image",
            "data.min_count": 3} | balance  # fmt: skip


def measure(quick, seeds, archive, out, workers):
    """By form and cell the values of all seeds: both directions, own pairs found, clients, the floor, and seconds."""
    plan = experiments(quick, seeds, archive, out)
    made, failed = common.play(dict(plan.values()), out / "hashing", workers, "test/MAP")
    found = {}
    for (form, cell, _), (run, _) in plan.items():
        if run in made:
            values = found.setdefault(form, {}).setdefault(
                cell, {name: [] for name in (*WAYS, *OWN_PAIRS, "own", "floor", "s")}
            )
            for name in (*WAYS, *OWN_PAIRS):
                values[name].append(made[run].final(f"test/{name}"))
            values["own"].append(made[run].final("clients/MAP"))
            values["floor"].append(made[run].final("test/random MAP"))
            values["s"].append(made[run].seconds)
    return {"forms": found, "failed": failed, "seeds": seeds}


def targets(figures):
    found = []
    for form in ("types, DCMH", "labels, DCMH"):
        cells = figures["forms"][form]
        for rival in RIVALS:
            for way in WAYS:
                pairs = [(bits, seed) for bits in BITS for seed in range(figures["seeds"])]
                ours = {(b, s): 100 * cells[f"fedcafe-{b}"][way][s] for b, s in pairs}
                theirs = {(b, s): 100 * cells[f"{rival}-{b}"][way][s] for b, s in pairs}
                name = f"{form}: FedCAFE above {METHODS[rival]}, {way}, points"
                found.append(common.beyond_noise(name, ours, theirs, "seeds and code lengths"))
    return found


def show(figures, out):
    for form, cells in figures["forms"].items():
        lengths = [bits for bits in BITS if f"fedavg-{bits}" in cells]
        if lengths:
            table = Table(title=f"{form}: MAP and R@k, per cent; ± over {figures['seeds']} seeds", title_justify="left")
            shown = [(way, bits) for way in WAYS for bits in lengths] + [(own, lengths[-1]) for own in OWN_PAIRS]
            heads = [f"{way.removeprefix('MAP ')} {bits}" for way, bits in shown]
            rows = {label: [cells[f"{method}-{bits}"][way] for way, bits in shown]
                    for method, label in METHODS.items() if f"{method}-{lengths[0]}" in cells}  # fmt: skip
        else:
            table = Table(title=f"{form}: MAP of 32 bits, per cent", title_justify="left")
            heads, rows = [way[4:] for way in WAYS], {label: [cells[label][way] for way in WAYS] for label in cells}
        for head in ("", *heads):
            table.add_column(head, justify="right" if head else "left")
        for label, values in rows.items():
            table.add_row(label, *(common.plus_minus(common.spread([100 * v for v in value])) for value in values))
        floor = next(iter(cells.values()))["floor"]
        table.add_row("codes at random", f"{100 * sum(floor) / len(floor):.1f}")
        out.print(table)
    for run, why in figures["failed"].items():
        out.print(f"{run} ended early: {why}", highlight=False, soft_wrap=True)
