"""Bytes between a node and its server beside the tensors that it trains: a model of 10 MB, a few rounds.

A relay between them counts all that passes from the node's start to the end of the last round: TLS, the greeting, the
app, polls for work.
"""

from rich.table import Table

from flower_parts.stage import photograph, played
from wayfare import Evaluation, Experiment, Training
from wayfare.objects.data.folder import ClassFolders
from wayfare.objects.models import CnnClassifier
from wayfare.objects.task import Objects

MOST = 0.05
ROUNDS = 3


def measure(quick, out):
    """Bytes both ways, beside those of the tensors."""
    folder = out / "wire"
    photograph(folder / "photos" / "anna")
    task = Objects(ClassFolders(str(folder / "photos" / "anna")), CnnClassifier(hidden=2440))
    experiment = Experiment(
        task, training=Training(iterations=2, batch_size=8), evaluation=Evaluation(every=0, holdout=0.0), rounds=ROUNDS
    )
    passed = {}

    def hear(event, data):
        if event == "round":
            passed.update(up=data["relay"].up, down=data["relay"].down)

    summary = played(experiment, folder, {"anna": folder / "photos" / "anna"}, hear, relayed=True)
    return {way: {"wire": passed[way], "tensors": summary[f"bytes_{way}"]} for way in ("up", "down")}


def targets(figures):
    wire, tensors = (sum(way[key] for way in figures.values()) for key in ("wire", "tensors"))
    size, value = figures["up"]["tensors"] / ROUNDS / 1e6, wire / tensors - 1
    name = f"bytes on the wire beyond the tensors, {size:.1f} MB each way and round"
    return [{"name": name, "value": value, "target": f"below {MOST}", "met": 0 <= value < MOST}]


def show(figures, console):
    table = Table(title=f"bytes of one node in {ROUNDS} rounds", title_justify="left")
    for column in ("", "tensors", "on the wire", "more"):
        table.add_column(column, justify="right" if column else "left")
    for way, count in figures.items():
        more = count["wire"] / count["tensors"] - 1
        table.add_row(way, f"{count['tensors']:,}", f"{count['wire']:,}", f"{100 * more:.2f} %")
    console.print(table)
