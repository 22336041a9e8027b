"""The walkers' traces as a table: device, time, lat, lon, stationary; a file per city, a row per slot."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import numpy as np

from wayfare.io import earth
from wayfare.town.model import City
from wayfare.town.walkers import Walkers


def write(folder: Path, city: City, walkers: Walkers) -> None:
    """Write `<city>.csv` into the folder; seven decimals of a degree are a centimetre."""
    midnight = datetime.fromisoformat(walkers.date)
    moments = [walkers.start + slot * walkers.slot for slot in range(len(walkers.positions))]
    times = [(midnight + timedelta(seconds=moment)).isoformat() for moment in moments]
    places = earth.to_degrees(walkers.positions.astype(float), (city.latitude, city.longitude))
    lines = ["device,time,lat,lon,stationary"]
    for device, (name, still) in enumerate(zip(walkers.names, walkers.stationary)):
        track = places[:, device]
        for slot in np.flatnonzero(~np.isnan(track[:, 0])):
            latitude, longitude = track[slot].tolist()
            lines.append(f"{name},{times[slot]},{latitude:.7f},{longitude:.7f},{bool(still)}")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{city.name}.csv").write_bytes(("\n".join(lines) + "\n").encode())
