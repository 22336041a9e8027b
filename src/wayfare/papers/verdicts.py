"""What runs say about a claim: an effect for each seed, Student's interval over the seeds, and a verdict.

Statistics, of cells with the same seed (so that what a seed does to all cells cancels out):

    difference  the mean of `above` minus the mean of `below`
    every       each of `above` minus its partner in `below`; the claim is about all of these pairs, and the one that
                speaks most against it is shown
    share       of the pairs in which `above` is larger
    slope       least squares along an ordered list of cells

A claim holds if the whole interval lies where the claim says, does not hold if the whole interval lies elsewhere, and
is undecided otherwise, as it is with fewer than two seeds. A claim about every pair holds if each pair holds. It does
not hold if one pair does not; with k pairs to choose from that needs an interval at 1 - 5 %/k (Bonferroni), because
the worst of many equal pairs looks bad by chance.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from wayfare.pages.compare import RunGroup
from wayfare.pages.record import Record
from wayfare.papers.claims import SECONDS_PER_ROUND, Claim, Sheet, Term, terms
from wayfare.papers.paper import ROUNDS_TO
from wayfare.papers.reproduction import MEASURES, rounds_to

CONFIDENCE = 0.95
Word = Literal["holds", "does not hold", "undecided", "untested"]
Runs = Mapping[str, Mapping[int, Record]]  # cell -> seed -> the finished run


class _Unknown(Exception):
    """A number that a run does not have, and why."""


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds with its confidence interval; without one for a single seed."""

    mean: float
    low: float | None = None
    high: float | None = None
    n: int = 1

    @classmethod
    def of(cls, values: Sequence[float], confidence: float = CONFIDENCE) -> Estimate:
        """Student's interval: mean ± t sd / sqrt(n), with the sample sd."""
        mean, n = statistics.fmean(values), len(values)
        if n < 2:
            return cls(mean)
        from scipy.special import stdtrit

        reach = float(stdtrit(n - 1, (1 + confidence) / 2)) * statistics.stdev(values) / math.sqrt(n)
        return cls(mean, mean - reach, mean + reach, n)

    def verdict(self, claim: Claim) -> Word:
        """Of this number alone."""
        if self.low is None or self.high is None:
            return "undecided"
        margin = claim.margin
        if claim.direction == "equal":
            inside, outside = -margin <= self.low and self.high <= margin, self.low > margin or self.high < -margin
        elif claim.direction == "greater":
            inside, outside = self.low > margin, self.high < margin
        else:
            inside, outside = self.high < margin, self.low > margin
        return "holds" if inside else "does not hold" if outside else "undecided"


@dataclass(frozen=True)
class Verdict:
    """What is known about a claim."""

    claim: Claim
    word: Word
    effect: Estimate | None = None
    paper: float | None = None
    unit: str = ""
    reason: str = ""  # why it is undecided or untested
    shown: str = ""  # of a claim about every pair: which pair the effect is of
    holding: tuple[int, int] | None = None  # of these: how many hold, of how many

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        effect = self.effect
        return {
            "id": self.claim.id,
            "claim": self.claim.claim,
            "source": self.claim.source,
            "verdict": self.word,
            "effect": None if effect is None else effect.mean,
            "interval": None if effect is None or effect.low is None else [effect.low, effect.high],
            "seeds": 0 if effect is None else effect.n,
            "unit": self.unit,
            "paper": self.paper,
            "pair": self.shown,
            "pairs_holding": self.holding,
            "reason": self.reason,
        }


def paper_effect(claim: Claim, sheet: Sheet | None) -> float | None:
    """The statistic of the paper's own values; None where it prints too few of them."""
    if claim.paper is not None or claim.untested or sheet is None:
        return claim.paper
    values: dict[str, float] = {}
    for item in (*claim.above, *claim.below, *claim.along):
        found = [(term.sign, sheet.published(claim, term)) for term in terms(item)]
        if any(value is None for _, value in found):
            return None
        values[item] = sum(sign * (value or 0.0) for sign, value in found)
    if claim.statistic == "every":
        return _worst(claim, [values[a] - (values[b] if b else 0.0) for a, b in claim.pairs])
    return _statistic(claim, values)


def decide(
    claim: Claim, sheet: Sheet | None, runs: Runs, scale: str, absent: Mapping[str, str] | None = None
) -> Verdict:
    """The verdict from the finished runs that there are; `absent` says of cells why they have none."""
    paper, why = paper_effect(claim, sheet), claim.untested
    if not why and scale != "paper":
        why = claim.paper_scale_only
    if why or sheet is None:
        return Verdict(claim, "untested", None, paper=paper, unit=sheet.unit(claim) if sheet else "", reason=why)
    unit, missing = sheet.unit(claim), [cell for cell in claim.cells if not runs.get(cell)]
    if missing:
        return Verdict(claim, "undecided", None, paper=paper, unit=unit, reason=_absent(missing, absent or {}))
    seeds = sorted(set.intersection(*(set(runs[cell]) for cell in claim.cells)))
    if not seeds:
        return Verdict(claim, "undecided", None, paper=paper, unit=unit, reason="its cells have no seed in common")
    try:
        by_seed = [_items(claim, sheet, runs, seed) for seed in seeds]
    except _Unknown as problem:
        return Verdict(claim, "undecided", None, paper=paper, unit=unit, reason=str(problem))
    few = "" if len(seeds) > 1 else "one seed has no interval: --seeds 3"
    if claim.statistic == "every":
        return _every(claim, by_seed, paper, unit, few)
    effect = Estimate.of([_statistic(claim, values) for values in by_seed])
    word = effect.verdict(claim)
    return Verdict(claim, word, effect, paper=paper, unit=unit, reason=few or _undecided(claim, word))


def _every(claim: Claim, by_seed: list[dict[str, float]], paper: float | None, unit: str, few: str) -> Verdict:
    """All pairs hold, one does not, or neither is known."""
    columns = {pair: [values[pair[0]] - values.get(pair[1], 0.0) for values in by_seed] for pair in claim.pairs}
    found = {pair: Estimate.of(values) for pair, values in columns.items()}
    words = [estimate.verdict(claim) for estimate in found.values()]
    worst = _worst(claim, [estimate.mean for estimate in found.values()])
    pair = next(pair for pair, estimate in found.items() if estimate.mean == worst)
    careful = 1 - (1 - CONFIDENCE) / len(columns)
    against = any(Estimate.of(v, careful).verdict(claim) == "does not hold" for v in columns.values())
    word: Word = "holds" if set(words) == {"holds"} else "does not hold" if against else "undecided"
    shown = " over ".join(filter(None, pair)) if len(columns) > 1 else ""
    holding = (words.count("holds"), len(words))
    return Verdict(
        claim,
        word,
        effect=found[pair],
        paper=paper,
        unit=unit,
        reason=few or _undecided(claim, word),
        shown=shown,
        holding=holding,
    )


def _absent(cells: Sequence[str], why: Mapping[str, str]) -> str:
    """Reasons, each with its cells."""
    by_reason: dict[str, list[str]] = {}
    for cell in cells:
        by_reason.setdefault(why.get(cell, "no finished run"), []).append(cell)
    return "; ".join(f"{reason} ({', '.join(found)})" for reason, found in by_reason.items())


def _undecided(claim: Claim, word: Word) -> str:
    if word != "undecided":
        return ""
    near = f"{claim.margin:g}" if claim.direction != "equal" else f"±{claim.margin:g}"
    return f"{'an' if claim.statistic == 'every' else 'the'} interval reaches to both sides of {near}"


def _worst(claim: Claim, effects: Sequence[float]) -> float:
    """The effect that speaks most against the claim."""
    if claim.direction == "equal":
        return max(effects, key=abs)
    return min(effects) if claim.direction == "greater" else max(effects)


def _statistic(claim: Claim, values: Mapping[str, float]) -> float:
    """One number from those of the claim's cells."""
    if claim.statistic == "slope":
        places = claim.at or tuple(map(float, range(len(claim.along))))
        return statistics.linear_regression(places, [values[item] for item in claim.along]).slope
    if claim.statistic == "share":
        return statistics.fmean(values[above] > values[below] for above, below in claim.pairs)
    low = statistics.fmean(values[item] for item in claim.below) if claim.below else 0.0
    return statistics.fmean(values[item] for item in claim.above) - low


# ---- numbers of runs


def _items(claim: Claim, sheet: Sheet, runs: Runs, seed: int) -> dict[str, float]:
    return {
        item: sum(term.sign * _value(claim, sheet, runs[term.cell][seed], term) for term in terms(item))
        for item in (*claim.above, *claim.below, *claim.along)
    }


def _value(claim: Claim, sheet: Sheet, record: Record, term: Term) -> float:
    """In the unit that the paper has it in."""
    metric, where = sheet.metric(claim), f"{term.cell}, seed {record.experiment.get('seed')}"
    found: Any
    if "/" in metric:
        value = record.final(metric) if term.share == 1 else _at(record, metric, term.share)
        found = value if value is None else value * _factor(metric, sheet)
    elif metric == SECONDS_PER_ROUND:
        found = record.seconds / max(record.done, 1)
    elif metric == ROUNDS_TO:
        found = rounds_to(RunGroup("", (record,)), sheet.paper.metric, sheet.paper.reach / _factor(metric, sheet))
    else:
        found = MEASURES[metric](RunGroup("", (record,)))
    found = found[0] if isinstance(found, tuple) else found
    if isinstance(found, str):
        raise _Unknown(f"{where}: {sheet.paper.metric} of {sheet.paper.reach:g} {sheet.paper.unit}: {found} rounds")
    if found is None or not math.isfinite(found):
        raise _Unknown(f"{where}: {'no' if found is None else 'not a finite'} {metric}")
    return float(found)


def _factor(metric: str, sheet: Sheet) -> float:
    """Shares are told in percent where the paper does; counts of meetings are no shares."""
    return 100.0 if sheet.paper.unit == "%" and not metric.startswith("tour/") else 1.0


def _at(record: Record, metric: str, share: float) -> float | None:
    """The last value that was measured up to this share of the rounds."""
    rounds, values = record.series(metric)
    return next((value for when, value in zip(reversed(rounds), reversed(values)) if when <= share * record.done), None)
