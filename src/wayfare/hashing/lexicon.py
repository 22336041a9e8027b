"""Which items have the words of a query in their texts: BM25 of SQLite's full-text index (FTS5).

The index is a file beside the codes. It says of which metadata it was made (`CodeFacts.metadata`); if that has changed,
or the file is missing or damaged, it is made again in memory. Words are compared by their stems: "bags" finds "bag".
"""

from __future__ import annotations

import math
import sqlite3
from collections import Counter
from collections.abc import Mapping
from contextlib import closing, suppress
from typing import Any

import numpy as np

from wayfare.hashing.code_index import WORDS, Codes
from wayfare.hashing.data.words import tokens

_MOST = 1000  # items that are found by words


class Lexicon:
    """The texts of an index, open for reading."""

    def __init__(self, codes: Codes) -> None:
        self._count = max(1, len(codes))
        self._file = _opened(codes) or _made(":memory:", codes)

    def has(self, word: str) -> bool:
        """Whether a text has this word, in any form."""
        return self._frequency(word) > 0

    def words(self) -> list[str]:
        """All words as they are written, of items that came with texts."""
        return [str(word) for (word,) in self._file.execute("SELECT word FROM spelling ORDER BY word")]

    def search(self, text: str) -> tuple[np.ndarray, np.ndarray]:
        """Rows of items that have words of a text, and for each the share of the text's words that it has.

        A rare word counts more: by BM25, divided by what a text of average length with all words once has. A short text
        that repeats a word has more than 1.
        """
        rarity = {word: self._rarity(word) for word in dict.fromkeys(tokens(text))}
        known = [word for word, value in rarity.items() if self.has(word)]
        if not known:
            return np.empty(0, np.int64), np.empty(0)
        most = sum(rarity.values())
        query = "SELECT rowid, -bm25(texts) FROM texts WHERE texts MATCH ? ORDER BY 2 DESC, 1 LIMIT ?"
        found = self._file.execute(query, (" OR ".join(map(_quoted, known)), _MOST)).fetchall()
        rows, scores = (np.array(column) for column in zip(*found))
        return rows.astype(np.int64), np.maximum(scores / most, 0)

    def postings(self, place_of: Mapping[int, int]) -> dict[str, Any]:
        """For a search without SQLite: rows and how often they have a stem, and how many words each row has.

        Rows are named by `place_of`; of both, what belongs together follows each other in a list.
        """
        self._file.execute("CREATE VIRTUAL TABLE IF NOT EXISTS temp.stems USING fts5vocab('main', 'texts', 'instance')")
        counts: dict[str, Counter[int]] = {}
        lengths: Counter[int] = Counter()
        for term, row in self._file.execute("SELECT term, doc FROM temp.stems"):
            counts.setdefault(str(term), Counter())[place_of[row]] += 1
            lengths[place_of[row]] += 1
        return {"terms": {term: _flat(counts[term]) for term in sorted(counts)}, "lengths": _flat(lengths)}

    def _frequency(self, word: str) -> int:
        query = "SELECT count(*) FROM (SELECT 1 FROM texts WHERE texts MATCH ? LIMIT 1000000)"
        return int(self._file.execute(query, (_quoted(word),)).fetchone()[0])

    def _rarity(self, word: str) -> float:
        """BM25's weight of a word, which is never negative here."""
        held = self._frequency(word)
        return max(math.log((self._count - held + 0.5) / (held + 0.5)), 1e-6)


def _flat(found: Counter[int]) -> list[int]:
    return [value for pair in sorted(found.items()) for value in pair]


def write(codes: Codes) -> None:
    """Put the file beside the codes; it is left out if that is impossible, since it can be made when it is needed."""
    part = codes.folder / f".{WORDS}.tmp"
    part.unlink(missing_ok=True)
    with suppress(OSError, sqlite3.Error):
        with closing(_made(str(part), codes)):
            pass
        part.replace(codes.folder / WORDS)


def _made(place: str, codes: Codes) -> sqlite3.Connection:
    file = sqlite3.connect(place)
    file.execute("CREATE VIRTUAL TABLE texts USING fts5(text, content='', tokenize='porter unicode61')")
    file.execute("CREATE TABLE spelling (word TEXT PRIMARY KEY, items INTEGER)")
    file.execute("CREATE TABLE made_of (facts TEXT)")
    for row in codes.live_rows():
        text = " ".join(map(str, codes.metadata_at(row).get("texts", ())))
        if text:
            words = tokens(text)
            file.execute("INSERT INTO texts (rowid, text) VALUES (?, ?)", (row, " ".join(words)))
            file.executemany(
                "INSERT INTO spelling VALUES (?, 1) ON CONFLICT (word) DO UPDATE SET items = items + 1",
                [(word,) for word in set(words)],
            )
    file.execute("INSERT INTO made_of VALUES (?)", (_facts(codes),))
    file.commit()
    return file


def _opened(codes: Codes) -> sqlite3.Connection | None:
    path = codes.folder / WORDS
    if not path.is_file():
        return None
    try:
        file = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
        if file.execute("SELECT facts FROM made_of").fetchone()[0] == _facts(codes):
            return file
    except (sqlite3.Error, TypeError):
        pass
    return None


def _facts(codes: Codes) -> str:
    facts = codes.facts
    return f"{facts.rows} {facts.metadata.size} {facts.metadata.crc} {facts.replaced.crc}"


def _quoted(word: str) -> str:
    return '"' + word.replace('"', '""') + '"'
