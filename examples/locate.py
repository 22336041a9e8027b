"""Train on the town, make an index of it, and ask where photos were taken.

python examples/locate.py [FOLDER]
"""

import sys
from pathlib import Path

from wayfare import Evaluation, Experiment, Training, run
from wayfare.partition.random import Random
from wayfare.places.backbones import SmallCnnBackbone
from wayfare.places.data.town import TownPhotos
from wayfare.places.index import Index
from wayfare.places.indexing import add
from wayfare.places.leave_one_out import Calibrator
from wayfare.places.locate import locate
from wayfare.places.model import PlaceModel
from wayfare.places.page_data import write_page
from wayfare.places.task import Places
from wayfare.places.trained_model import load_model

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/locate")

task = Places(TownPhotos(size="tiny", height=48, width=64), PlaceModel(SmallCnnBackbone()), warmup=20)
training = Training(batch_size=8, lr=1e-3, optimizer="adam")
run(Experiment(task, Random(4), training=training, evaluation=Evaluation(holdout=0), rounds=2), folder)

model = load_model(folder)
photos = model.task.loaded.divided.photos  # of the town: where each was taken, and which are queries
add(model, photos.take(~photos.query), folder / "index", Calibrator(model, folder))

index = Index(folder / "index")
queries = photos.take(photos.query).paths()[::20]
located = locate(index, queries, k=3)
for answer in located.answers:
    verdict = {True: "unknown", False: "found", None: "not judged"}[answer.unknown]
    place = answer.position
    print(f"{answer.photo.name}: {verdict}, {place.city} {place.latitude:.5f} {place.longitude:.5f}")
print("page:", write_page(index, located, folder / "located.html"))
