"""The pages of claims: an index, and one page for each paper, with a picture and a table for each data set.

`write_pages` makes all of them from the files of results, so that they can be made again without any run. Where several
results are about the same claim on the same data, the newest counts, and one by the sequential rule before any other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from wayfare.core.text import printable
from wayfare.pages.tables import human_seconds, number
from wayfare.papers.claims_document import WORDS, counts, effect_words, paper_words, remark
from wayfare.papers.claims_picture import picture
from wayfare.papers.claims_results import ClaimResults, Setting, read_results, slug

Row = dict[str, Any]  # a verdict, with the setting that it rests on
_EARLIER = "three seeds"
_LONGEST = 5000  # characters of a text
_INDEX = "claims.md"


def write_pages(docs: Path) -> list[Path]:
    """Everything below this folder of documentation; returns the pages."""
    written = list[Path]()
    for path, text in pages(read_results(docs)).items():
        file = docs / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        written.append(file)
    return written


def pages(results: Sequence[ClaimResults]) -> dict[str, str]:
    """Every file by its path below the folder of documentation."""
    papers = dict.fromkeys(
        each.setting.publication for each in sorted(results, key=lambda each: each.setting.publication)
    )
    found = {_INDEX: _index({paper: _sections(results, paper) for paper in papers})}
    for paper in papers:
        sections = _sections(results, paper)
        found[f"claims/{paper}.md"] = _paper(paper, sections)
        for called, rows in sections.items():
            earlier = {row["id"] for row in rows if row["setting"].rule == _EARLIER}
            found[f"claims/{_image(paper, called)}"] = picture(f"{paper}: {called}", rows, earlier)
    return found


def _sections(results: Sequence[ClaimResults], paper: str) -> dict[str, list[Row]]:
    """Data -> the verdict on each claim that counts, in the order of words."""
    found: dict[str, dict[str, Row]] = {}
    for each in results:
        if each.setting.publication == paper:
            known = found.setdefault(each.setting.called, {})
            for verdict in each.verdicts:
                if verdict["seeds"] or verdict["id"] not in known:
                    known[verdict["id"]] = {**verdict, "setting": each.setting}
    return {
        called: sorted(known.values(), key=lambda row: WORDS.index(row["verdict"])) for called, known in found.items()
    }


def _image(paper: str, called: str) -> str:
    return f"{slug(f'{paper} {called}')}.svg"


# ---- the index


_INTRODUCTION = """# Claims of the papers, tested

Written by `wayfare claims --docs docs`; do not edit. The page of a paper begins with a picture: what holds, with our
effect beside the paper's. [The rule](claims-rule.md) says when a claim is decided: seeds are added until it is, with an
error of 5 %. Verdicts by the earlier rule are of three seeds.
"""


def _index(papers: dict[str, dict[str, list[Row]]]) -> str:
    return "\n".join([_INTRODUCTION, *_overview(papers), ""])


def _overview(papers: dict[str, dict[str, list[Row]]]) -> Iterator[str]:
    """A line for each paper and data set."""
    heads = (
        "paper",
        "data",
        "decided",
        "hold",
        "do not hold",
        "undecided",
        "untested",
        "by the earlier rule",
        "latest runs",
    )
    yield f"| {' | '.join(heads)} |"
    yield f"|{'---|' * len(heads)}"
    for paper, sections in papers.items():
        for called, rows in sections.items():
            words = [row["verdict"] for row in rows]
            holds, fails, open_, untested = (words.count(word) for word in WORDS)
            earlier = sum(row["setting"].rule == _EARLIER and row["verdict"] != "untested" for row in rows)
            latest = max(row["setting"].date for row in rows)
            decided = f"{holds + fails} of {holds + fails + open_}"
            link = f"[{paper}](claims/{paper}.md)"
            cells = (link, _told(called), decided, holds, fails, open_, untested, earlier, latest)
            yield f"| {' | '.join(map(str, cells))} |"


# ---- a paper


def _paper(paper: str, sections: dict[str, list[Row]]) -> str:
    title = next(rows[0]["setting"].title for rows in sections.values())
    parts = [f"# Claims: {paper}", "", f"{_told(title)}.", "",
             "Effects are means over seeds, paired by seed. [The rule](../claims-rule.md) says when a claim holds.",
             ""]  # fmt: skip
    for called, rows in sections.items():
        parts += _section(paper, called, rows)
    return "\n".join(parts)


def _section(paper: str, called: str, rows: list[Row]) -> Iterator[str]:
    yield f"## {_told(called[:1].upper() + called[1:])}"
    yield ""
    yield f"![{counts(row['verdict'] for row in rows)}]({_image(paper, called)})"
    yield ""
    settings = list(dict.fromkeys(row["setting"] for row in rows))
    measured = [row for row in rows if row["verdict"] != "untested"]
    yield "| verdict | claim | effect | paper | seeds | seen from | remarks |"
    yield "|---|---|---|---|---|---|---|"
    yield from (_line(row, settings) for row in measured)
    yield ""
    if len(measured) < len(rows):
        yield "Cannot be tested here:"
        yield ""
        for row in rows[len(measured) :]:
            yield _cell(_told(f"- {row['claim']} ({row['source']}): {row['reason']}"))
        yield ""
    yield from (f"<sup>{place}</sup> {_footnote(setting)}\n" for place, setting in enumerate(settings, start=1))


def _line(row: Row, settings: list[Setting]) -> str:
    word = f"**{row['verdict']}**" if row["verdict"] in WORDS[:2] else row["verdict"]
    unit = _told(row["unit"])
    seen = "" if row["visible"] is None else effect_words(row["visible"], None, unit).lstrip("+")
    seeds = f"{row['seeds']}<sup>{settings.index(row['setting']) + 1}</sup>"
    effect = effect_words(row["effect"], row["interval"], unit)
    said, paper = _told(f"{row['claim']} ({row['source']})"), paper_words(row["paper"], unit)
    remarks = _told("; ".join(filter(None, (remark(row), row["note"]))))
    cells = (word, said, effect, paper, seeds, seen, remarks)
    return f"| {' | '.join(map(_cell, cells))} |"


def _footnote(setting: Setting) -> str:
    """Everything that the results rest on."""
    parts = [
        f"{setting.date}, {setting.scale} scale",
        "by the earlier rule, with three seeds" if setting.rule == _EARLIER else "by the rule",
        f"only `{setting.only}`" if setting.only else "",
        f"{number(setting.runs)} runs, {human_seconds(setting.seconds)} in all",
        f"code {', '.join(setting.code)}" if setting.code else "",
    ]
    return _told(f"{'; '.join(filter(None, parts))}. Data: {setting.data}. Settings: {setting.settings.rstrip('.')}.")


def _told(text: str) -> str:
    """Text from a file of results: no HTML on the page."""
    return printable(text, _LONGEST).replace("<", "&lt;")


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())
