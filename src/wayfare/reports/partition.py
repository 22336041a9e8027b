"""The page of a partition on its own, as `wayfare split` draws it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wayfare.reports import page
from wayfare.reports.figures import partition_figure
from wayfare.reports.tables import partition_rows


def write_partition(summary: Mapping[str, Any], out: Path) -> Path:
    """Draw who has what on one self-contained page."""
    drawn = partition_figure(summary)
    rule = str(summary["provenance"].get("rule", "partition"))
    lead = "Which client holds how many samples of which class, and how far the clients are from each other."
    header = page.tag(
        "header",
        page.tag("p", "Wayfare · partition", class_="eyebrow"),
        page.tag("h1", f"{rule}, {page.several(summary['table']['clients'], 'client')}"),
        page.tag("p", lead, class_="lead"),
    )
    picture = [page.legend(drawn.keys) if drawn.keys else None, page.plots([drawn], titles=False)] if drawn else []
    sections = [
        page.section(
            "partition",
            "Who has what",
            *picture,
            page.facts("The partition in numbers", partition_rows(summary["table"])),
        ),
        page.section(
            "provenance",
            "Where it comes from",
            page.facts("Provenance", list(page.flatten(summary["provenance"]).items())),
        ),
    ]
    return page.save(page.document(f"partition {rule}", header, sections, [drawn] if drawn else []), out)
