"""Kinds of things that no device has ever seen, asked for by their names.

Five kinds at a time are taken out of everything that is learnt from: their photos, and all pairs whose title has one of
their names in it. recipes/search.toml with DINOv2, MiniLM and 128 bits then learns from the rest, federated over ten
devices, and the name of each kind is asked for among the 4,000 photos of `everyday`, in which these kinds are. Beside
it the same model taught all kinds, and chance. Which kinds are taken out is drawn, three times five of those that have
at least 20 of the photos that are asked for; settings are those of `everyday`.
"""

import csv
import re
import statistics
from collections import Counter

from rich.table import Table

from hashing_parts import everyday
from hashing_parts.everyday import FIRST, Wanted
from places_parts import common
from wayfare.core.seeds import rng_for

FOLDS, KINDS, LEAST_THERE = 3, 5, 20
TAUGHT = "all kinds"


def measure(archive, out, machine):
    """For each kind that was taken out: precision when it was not seen, when it was, and by chance."""
    folder = out / "everyday"
    table, facts = everyday.table_of(archive, folder)
    if not everyday.bring_encoders(out / "cache"):
        return {}
    folds = _folds(facts, table)
    runs = {everyday.OURS: everyday.ours(table)}
    runs |= {f"without-{fold}": everyday.ours(_without(table, kinds, fold)) for fold, kinds in enumerate(folds)}
    photos = everyday.unseen_photos(table, facts)
    found = {}
    with common.cache_in(out / "cache"):
        common.play(runs, folder / "runs", machine, "test/R@10")
        for fold, kinds in enumerate(folds):
            unseen, seen = (_asked(folder, name, photos, kinds, facts) for name in (f"without-{fold}", everyday.OURS))
            for kind in kinds:
                name = kind.lower()
                found[kind] = unseen[name] | {"unseen": unseen[name]["right"], "seen": seen[name]["right"]}
    return {"kinds": found, "photos": len(list(photos.iterdir()))}


def _folds(facts, table):
    with table.open(encoding="utf-8", newline="") as file:
        there = Counter(row["articleType"] for row in csv.DictReader(file) if row["split"] == "query")
    kinds = sorted(kind for kind, count in there.items() if count >= LEAST_THERE)
    drawn = rng_for(0, "zero shot").permutation(len(kinds))[: FOLDS * KINDS]
    return [[kinds[at] for at in drawn[fold * KINDS : (fold + 1) * KINDS].tolist()] for fold in range(FOLDS)]


def _without(table, kinds, fold):
    """The table without these kinds, and without titles that name them, in the singular or plural."""
    names = [re.sub(r"(es|s)$", "", kind.lower()) for kind in kinds]
    named = re.compile(r"\b(" + "|".join(map(re.escape, names)) + r")(s|es)?\b")
    path = table.with_name(f"without-{fold}.csv")
    with table.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(
            row for row in rows
            if row["articleType"] not in kinds and not named.search(row["productDisplayName"].lower())
        )  # fmt: skip
    return path


def _asked(folder, name, photos, kinds, facts):
    index = everyday.index_of(folder / "runs" / name, folder / "indexes" / name, photos)
    held = [facts[photo.stem] for photo in photos.iterdir()]
    return everyday.judged(index, {kind.lower(): Wanted({kind}) for kind in kinds}, held, facts)


def _mean(figures, what):
    return statistics.fmean(one[what] for one in figures["kinds"].values())


def targets(figures):
    """Twice chance, so that a model that has learnt nothing of use is found out."""
    if not figures:
        return []
    name = f"precision at {FIRST} of the names of {len(figures['kinds'])} kinds never seen"
    return [common.at_least(f"{name} (taught them: {_mean(figures, 'seen'):.2f})", _mean(figures, "unseen"),
                            2 * _mean(figures, "chance"))]  # fmt: skip


def show(figures, out):
    if not figures:
        return
    table = Table(title=f"precision at {FIRST} of kinds by their names, {figures['photos']:,} photos",
                  title_justify="left")  # fmt: skip
    for head in ("kind", "right ones", "by chance", "never seen", "taught", "read as"):
        table.add_column(head, justify="left" if head in ("kind", "read as") else "right")
    for kind, one in figures["kinds"].items():
        read = ", ".join(f"{word}: {known}" for word, known in one.get("read_as", {}).items())
        unseen = "refused" if one["refused"] else f"{one['unseen']:.1f}"
        table.add_row(kind, str(one["there"]), f"{one['chance']:.3f}", unseen, f"{one['seen']:.1f}", read)
    table.add_row("mean", "", f"{_mean(figures, 'chance'):.3f}", f"{_mean(figures, 'unseen'):.2f}",
                  f"{_mean(figures, 'seen'):.2f}")  # fmt: skip
    out.print(table)
