"""Train on the town, make an index of it, and ask where photos were taken.

python examples/locate.py [FOLDER]
"""

import sys
from pathlib import Path

from wayfare import Evaluation, Experiment, Training, run
from wayfare.data.partition.random import Random
from wayfare.tasks.places import Places
from wayfare.use.adding import add
from wayfare.use.confidence import calibrate
from wayfare.use.index import Index
from wayfare.use.locate import locate
from wayfare.use.model import load_model
from wayfare.use.page import write_page

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/locate")

task = Places(town="tiny", architecture="cnn", height=48, width=64, warmup=20)
training = Training(batch_size=8, lr=1e-3, optimizer="adam")
run(Experiment(task, Random(4), training=training, evaluation=Evaluation(holdout=0), rounds=2), folder)

model = load_model(folder)
photos = model.task.grounds.photos  # of the town: where each was taken, and which of them ask
add(model, photos.take(~photos.query), folder / "index", lambda: calibrate(model, folder))

index = Index(folder / "index")
queries = photos.take(photos.query).paths()[::20]
located = locate(index, queries, k=3)
for answer in located.answers:
    verdict = {True: "unknown", False: "found", None: "not judged"}[answer.unknown]
    place = answer.position
    print(f"{answer.photo.name}: {verdict}, {place.city} {place.latitude:.5f} {place.longitude:.5f}")
print("page:", write_page(index, located, folder / "located.html"))
