"""An index of search as a site has it: codes, their 8-bit numbers, names and texts, words with their stems."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from wayfare.exporting.packing import Pack, write_json, write_pack
from wayfare.hashing.search import VIEWS, SearchIndex, View


def write_search(index: SearchIndex, folder: Path, pack: Pack) -> dict[str, Any]:
    """Write it to `folder`/data; what the site's table says of it."""
    model = index.model
    views = {view: _write_view(index, view, folder / "data", pack) for view in VIEWS if view in index.codes}
    return {
        "views": views, "bits": model.bits, "vocabulary": list(model.words), "close": dict(model.close),
        "centres": {kind: model.centre(kind).tolist() for kind in ("words", "text", "image")},
    }  # fmt: skip


def _write_view(index: SearchIndex, view: View, data: Path, pack: Pack) -> dict[str, Any]:
    codes, bits = index.codes[view], index.model.bits
    data.mkdir(parents=True, exist_ok=True)
    rows = np.array(list(codes.live_rows()), np.int64)
    about = [codes.metadata_at(row) for row in rows.tolist()]
    ids = [codes.id_at(row) for row in rows.tolist()]
    order = {id: place for place, id in enumerate(sorted(ids))}  # equal results come in the order of their ids
    items = [
        {"name": str(each.get("name", "")), "texts": list(map(str, each.get("texts", ()))),
         "labels": list(map(str, each.get("labels", ()))), "order": order[id]}
        for id, each in zip(ids, about)
    ]  # fmt: skip
    write_json(data / f"{view}-items.json", items)
    codes.packed(rows).tofile(data / f"{view}-codes.bin")
    codes.numbers(rows, bits).astype(np.int8).tofile(data / f"{view}-values.bin")
    lexicon = index.lexicon(view).postings({row: place for place, row in enumerate(rows.tolist())})
    words = list(index.vocabulary(view))
    write_json(data / f"{view}.json", {"bits": bits, "vocabulary": words, "lexicon": lexicon | {"items": len(rows)}})
    files = [Path(each["files"][0]) if each.get("files") else None for each in about]
    return {
        "count": len(rows), "facts": f"data/{view}.json", "items": f"data/{view}-items.json",
        "codes": f"data/{view}-codes.bin", "values": f"data/{view}-values.bin",
        "pictures": write_pack(pack, files, data / f"{view}-pictures") if view == "photos" else None,
    }  # fmt: skip
