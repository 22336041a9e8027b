"""What a data set is, in a sentence."""

from __future__ import annotations

from collections.abc import Mapping

from wayfare.io.layouts import DESCRIPTIONS

_MOST = 8  # classes that are listed
Counts = Mapping[str, int | float | str]


def described(layout: str, counts: Counts) -> str:
    """What was found, for people."""
    says = {"folder": _folder, "photos": _photos, "csv_pairs": _pairs, "traces": _traces}
    return says[layout](counts) if layout in says else _others(layout, counts)


def _folder(counts: Counts) -> str:
    sizes = {name: int(count) for name, count in counts.items() if name not in ("pictures", "classes")}
    listed = ", ".join(f"{name} {count}" for name, count in list(sizes.items())[:_MOST])
    more = f", and {len(sizes) - _MOST} more" if len(sizes) > _MOST else ""
    return f"{counts['pictures']:,} pictures in folders of {counts['classes']} classes: {listed}{more}"


def _photos(counts: Counts) -> str:
    sources = {"table": "in a table", "exif": "in the photos (EXIF)", "names": "in the files' names"}
    parts = [f"{counts['photos']:,} photos"]
    if "width, m" in counts:
        source = sources.get(str(counts["form"]), "given")
        zones, extent = str(counts.get("zones", "")), _extent(counts["width, m"], counts["height, m"])
        parts[0] += f" with positions {source}, spread over {extent}"
        if "," in zones:
            parts[0] += f" in the widest of several parts of the world (UTM zones {zones})"
    if "latitude" in counts and "," not in str(counts.get("zones", "")):
        parts[0] += f" around latitude {counts['latitude']}, longitude {counts['longitude']}"
    parts += [f"{counts[name]:,} {name}" for name in ("sequences", "queries", "by night") if counts.get(name)]
    return ", ".join(parts)


def _extent(width: int | float | str, height: int | float | str) -> str:
    metres = sorted((float(width), float(height)), reverse=True)
    if metres[0] >= 10_000:
        return f"{metres[0] / 1000:,.0f} x {metres[1] / 1000:,.0f} km"
    return f"{metres[0]:,.0f} x {metres[1]:,.0f} m"


def _pairs(counts: Counts) -> str:
    without = f"without labels ({counts['no column of labels']})" if "no column of labels" in counts else ""
    return f"{counts['pairs']:,} photos with texts, {without or str(counts['labels']) + ' labels'}"


def _traces(counts: Counts) -> str:
    named = {
        "devices": "devices", "stationary": "of them never move", "hours": "hours", "contacts": "contacts",
        "contacts within 50 m": "contacts within 50 m",
    }  # fmt: skip
    read_as = f"; read as {counts['read as']}, --layout names other forms" if "read as" in counts else ""
    held = ", ".join(f"{counts[name]:,} {word}" for name, word in named.items() if counts.get(name))
    return f"traces: {held}{read_as}".replace(": 1 devices", ": 1 device")


def _others(layout: str, counts: Counts) -> str:
    listed = "; ".join(f"{name}: {count}" for name, count in list(counts.items())[:_MOST])
    return f"{DESCRIPTIONS[layout].partition(':')[0]}. {listed}"
