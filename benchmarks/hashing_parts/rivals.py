"""FedCAFE against rivals that are tuned: every method gets the same number of runs to choose its settings from.

Real fashion pairs, 30 kinds of things, dealt to ten clients by Dirichlet 0.5 (as Tab. 3); 32 bits, over both base
methods. Linear heads on a frozen EfficientNet-Lite0 and on bags of words: a run takes seconds, so that there can be
many. 1,000 pairs are kept apart to judge. Settings are chosen by 1,000 others, which no run learns from either, with a
seed of its own: first the learning rate from three, then three settings that are the method's own. All take as many
steps, whichever settings are chosen. The mean of MAP of both directions decides. What was chosen is then run with seeds
that were not used before. Local, FedProto and PLFedCMH have a model for each client; their figure is the mean over
these. FedCAFE is also run with its memory made in other ways, and without one, with the settings chosen for it.
"""

import csv
import statistics
from collections import Counter

from rich.table import Table

from places_parts import common
from wayfare.core.errors import ConfigError
from wayfare.core.seeds import rng_for
from wayfare.experiment import Experiment
from wayfare.io.archives import unpack
from wayfare.recipe import override

JUDGED, CHOSEN_BY, TRAIN = 1000, 1000, 4000
KIND, LEAST_OF_A_KIND, TUNING_SEED = "articleType", 50, 1000
RATES = (1e-3, 3e-3, 1e-2)
OWN = {  # what a method is tuned by beside its learning rate; with three values each
    "local": [{"training.weight_decay": decay} for decay in (1e-5, 1e-4, 1e-3)],
    "fedavg": [{"training.weight_decay": decay} for decay in (1e-5, 1e-4, 1e-3)],
    "fedprox": [{"strategy.mu": mu} for mu in (0.001, 0.1, 1.0)],
    "moon": [{"strategy.mu": mu} for mu in (0.1, 1.0, 10.0)],
    "fedcmr": [{"strategy.sharpness": 10.0}, {"strategy.scope": "hash_layer"}, {"strategy.correction": 0.0}],
    "fedproto": [{"strategy.lam": lam} for lam in (0.1, 10.0, 100.0)],
    "plfedcmh": [{"strategy.lam": 1e3}, {"strategy.lr": 1e-2}, {"strategy.lam": 1e3, "strategy.beta": 0.05}],
    "fedcafe": [{"strategy.memory": "authors", "strategy.similar": "clusters"}, {"strategy.memory": "paper"},
                {"strategy.reduction": "batch"}],
}  # fmt: skip
MEMORIES = {  # of FedCAFE, with the settings chosen for it
    "none": {"enhancement": False, "aggregation": "off", "lambda_e": 0.0},
    "seeded by classes": {"memory": "seeded", "similar": "auto"},
    "as the authors' code": {"memory": "authors", "similar": "clusters"},
    "as the paper": {"memory": "paper", "similar": "auto"},
}
LABELS = {"local": "Local", "fedavg": "FedAvg", "fedprox": "FedProx", "moon": "MOON", "fedcmr": "FedCMR",
          "fedproto": "FedProto", "plfedcmh": "PLFedCMH", "fedcafe": "FedCAFE"}  # fmt: skip
BASES = {"DCMH": {"name": "dcmh", "eta": 0.001}, "SHDCH": {"name": "shdch", "gamma": 1.0, "eta": 100.0}}
OURS, METRIC, WAYS = "fedcafe", "test/MAP", ("MAP i2t", "MAP t2i", "R@10")
QUICK = ("fedavg", "fedcafe")


def measure(quick, seeds, archive, out, workers, cells=""):
    """Of each base: by method what was chosen, and its values for all seeds. `cells` names some bases and methods."""
    folder = out / "rivals"
    tables = None if quick else tables_of(archive, folder / "photos")
    named = {name.strip() for name in cells.split(",")} - {""}
    if unknown := named - {*OWN, *BASES}:
        raise ConfigError(f"--cells {', '.join(sorted(unknown))}: there are {', '.join((*BASES, *OWN))}")
    methods = QUICK if quick else tuple(name for name in OWN if name in named or not named & {*OWN})
    bases = dict(list(BASES.items())[:1]) if quick else {
        name: base for name, base in BASES.items() if name in named or not named & {*BASES}
    }  # fmt: skip
    chosen, tried = _tuned(bases, methods, tables, folder, workers)
    judged = tables and tables[1]
    plan = {
        f"judged/{base}/{method}-{seed}": _experiment(base, method, judged, settings, seed)
        for (base, method), settings in chosen.items() for seed in range(seeds)
    }  # fmt: skip
    memories = {
        (base, name): settings | {f"strategy.{key}": value for key, value in more.items()}
        for (base, method), settings in chosen.items() if method == OURS for name, more in MEMORIES.items()
    }  # fmt: skip
    plan |= {
        f"memory/{base}/{name}-{seed}": _experiment(base, OURS, judged, settings, seed)
        for (base, name), settings in memories.items() for seed in range(seeds)
    }  # fmt: skip
    made, _ = common.play(plan, folder, workers, METRIC)

    def values_of(kind, base, name):
        names = [f"{kind}/{base}/{name}-{seed}" for seed in range(seeds)]
        final = [made[each] for each in names if each in made]
        return final, {way: [each.final(f"test/{way}") for each in final] for way in ("MAP", *WAYS)}

    found = {}
    for (base, method), settings in chosen.items():
        final, values = values_of("judged", base, method)
        bytes_ = statistics.fmean(each.summary["bytes_up"] + each.summary["bytes_down"] for each in final)
        found.setdefault(base, {})[method] = {
            "settings": settings, "values": values, "bytes": bytes_, "floor": final[0].final("test/random MAP"),
            "tried": len(tried[base, method]), "validation": tried[base, method],
        }  # fmt: skip
    by_memory = {base: {name: values_of("memory", base, name)[1] for name in MEMORIES} for base, _ in memories}
    return {"bases": found, "memories": by_memory, "seeds": seeds}


def _tuned(bases, methods, tables, folder, workers):
    """The settings of the best run on the pairs that choose, and the figures of all of them."""
    first = {(base, method): [{"training.lr": rate} for rate in RATES] for base in bases for method in methods}
    tried = _tried(first, tables, folder, workers)
    best = {key: max(runs, key=lambda run: run[1])[0] for key, runs in tried.items()}
    second = {(base, method): [best[base, method] | own for own in OWN[method]] for base, method in best}
    for key, runs in _tried(second, tables, folder, workers).items():
        tried[key] += runs
    return {key: max(runs, key=lambda run: run[1])[0] for key, runs in tried.items()}, tried


def _tried(plan, tables, folder, workers):
    runs = {
        (*key, at): _experiment(*key, tables and tables[0], settings, TUNING_SEED)
        for key, each in plan.items() for at, settings in enumerate(each)
    }  # fmt: skip
    names = {key: f"tuning/{key[0]}/{key[1]}-{_named(plan[key[:2]][key[2]])}" for key in runs}
    made, _ = common.play({names[key]: experiment for key, experiment in runs.items()}, folder, workers, METRIC)
    return {
        key: [(settings, made[names[(*key, at)]].final(METRIC) if names[(*key, at)] in made else 0.0)
              for at, settings in enumerate(each)]
        for key, each in plan.items()
    }  # fmt: skip


def _named(settings):
    return ",".join(f"{name.rpartition('.')[2]}={value}" for name, value in settings.items())


def _experiment(base, method, table, settings, seed):
    recipe = recipe_of(table)
    recipe["task"]["base"], recipe["strategy"] = BASES[base], {"name": method}
    return Experiment.from_table(override(recipe, settings)).with_seed(seed)


def recipe_of(table):
    """Linear heads on frozen features; without a table it is the made-up sample."""
    data = {"name": "sample"} if table is None else {
        "name": "table", "path": str(table), "labels": KIND, "text": "productDisplayName", "photo": "image",
    }  # fmt: skip
    image = {"name": "file", "hidden": 0} if table is None else {"name": "frozen", "hidden": 0}
    return {
        "name": "rivals", "rounds": 2 if table is None else 12, "data": data,
        "model": {"bits": 32, "image": image, "text": {"hidden": 0}},
        "task": {"name": "hashing", "order": "alternate"},
        "partition": {"name": "dirichlet", "clients": 10, "alpha": 0.5}, "strategy": {"name": "fedavg"},
        "training": {"epochs": 3, "batch_size": 64, "optimizer": "adam"},
        "evaluation": {"every": 100, "clients": 10, "holdout": 0.0},  # clients: those with models of their own
    }  # fmt: skip


def tables_of(archive, folder):
    """Two tables of the same pairs to learn from: with the queries that choose settings, and with those that judge."""
    if not folder.exists():
        unpack(archive, folder)
    source = next(folder.rglob("pairs.csv"))
    with source.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    count = Counter(row[KIND] for row in rows)
    rows = [row for row in rows if count[row[KIND]] >= LEAST_OF_A_KIND]
    order = rng_for(0, "rivals").permutation(len(rows)).tolist()
    judged, chosen_by = set(order[:JUDGED]), set(order[JUDGED : JUDGED + CHOSEN_BY])
    learnt = set(order[-TRAIN:])
    return tuple(
        _written(source.with_name(name), rows, asks, judged - asks, learnt)
        for name, asks in (("choosing.csv", chosen_by), ("judging.csv", judged))
    )


def _written(path, rows, asks, hidden, learnt):
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, [*rows[0], "split"])
        writer.writeheader()
        for at, row in enumerate(rows):
            if at not in hidden:
                split = "query" if at in asks else "train" if at in learnt else "retrieval"
                writer.writerow({**row, "split": split})
    return path


def targets(figures):
    """FedCAFE above each rival that is a single model for all."""
    found = []
    for base, methods in figures["bases"].items():
        if OURS not in methods:
            continue
        ours = methods[OURS]["values"]["MAP"]
        for rival in methods:
            if rival != OURS:
                pairs = [dict(enumerate(100 * value for value in each))
                         for each in (ours, methods[rival]["values"]["MAP"])]  # fmt: skip
                name = f"{base}: FedCAFE above tuned {LABELS[rival]}, MAP of both directions, points"
                found.append(common.beyond_noise(name, *pairs, "seeds"))
    return found


def show(figures, out):
    for base, methods in figures["bases"].items():
        title = f"{base}, 32 bits, tuned: per cent, ± over {figures['seeds']} seeds"
        table = Table(title=title, title_justify="left")
        for head in ("", *WAYS, "MB in all", "chosen from", "chosen"):
            table.add_column(head, justify="left" if head in ("", "chosen") else "right")
        for method, each in methods.items():
            cells = [common.plus_minus(common.spread([100 * v for v in each["values"][way]])) for way in WAYS]
            chosen = _named(each["settings"])
            table.add_row(LABELS[method], *cells, f"{each['bytes'] / 1e6:.1f}", str(each["tried"]), chosen)
        floor = next(iter(methods.values()))["floor"]
        table.add_row("codes at random", f"{100 * floor:.1f}")
        out.print(table)
    for base, memories in figures["memories"].items():
        table = Table(title=f"FedCAFE over {base}: its memory, per cent, ± over {figures['seeds']} seeds",
                      title_justify="left")  # fmt: skip
        for head in ("memory", *WAYS):
            table.add_column(head, justify="left" if head == "memory" else "right")
        for name, values in memories.items():
            table.add_row(name, *(common.plus_minus(common.spread([100 * v for v in values[way]])) for way in WAYS))
        out.print(table)
