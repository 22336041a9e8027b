"""What runs say about a claim: an effect for each seed, an interval over the seeds, and a verdict.

Statistics, of cells with the same seed (so that what a seed does to all cells cancels out):

    difference  the mean of `above` minus the mean of `below`
    every       each of `above` minus its partner in `below`; the claim is about all of these pairs, and the one that
                speaks most against it is shown
    share       of the pairs in which `above` is larger
    slope       least squares along an ordered list of cells

A claim is looked at after 4, 6, 9, 13 and 20 seeds (`sequential`). At a look it holds if the whole interval, Student's
at this look's level, lies where the claim says, and does not hold if all of it lies elsewhere. The first look that
decides it counts; without one it is undecided. A claim about every pair holds if each pair holds. It does not hold if
one pair is clearly on the wrong side, which is tested jointly over the pairs.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from wayfare.pages.compare import RunGroup
from wayfare.pages.reach import TargetValue
from wayfare.pages.record import Record
from wayfare.papers.claims import SECONDS_PER_ROUND, Claim, Sheet, Term, terms
from wayfare.papers.paper import REACHED
from wayfare.papers.reproduction import MEASURES, cost_to
from wayfare.papers.sequential import ERROR, LEVELS, looks_with, next_look, one_is_negative, share_is_clear, visible

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
    deviation: float = 0.0  # over seeds

    @classmethod
    def of(cls, values: Sequence[float], level: float = ERROR) -> Estimate:
        """Student's interval at 1 - level: mean ± t sd / sqrt(n), with the sample sd."""
        mean, n = statistics.fmean(values), len(values)
        if n < 2:
            return cls(mean)
        from scipy.special import stdtrit  # the command line imports this module and need not wait for scipy

        deviation = statistics.stdev(values)
        reach = float(stdtrit(n - 1, 1 - level / 2)) * deviation / math.sqrt(n)
        return cls(mean, mean - reach, mean + reach, n, deviation)

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
    visible: float | None = None  # the effect beyond the margin that would have been found with 80 % by this look
    can_continue: bool = False  # more seeds may decide it

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        effect, disagrees = self.effect, self.claim.paper_disagrees
        own = f"the paper's own numbers: {disagrees}" if disagrees else ""
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
            "visible": self.visible,
            "margin": self.claim.margin,
            "direction": self.claim.direction,
            "reason": self.reason,
            "note": "; ".join(filter(None, (self.claim.note.rstrip("."), own))),
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
    """The verdict from the finished runs; `absent` says why cells have none."""
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
    verdict = Verdict(claim, "undecided")
    for look in looks_with(len(seeds)) or [len(seeds)]:
        try:
            by_seed = [_items(claim, sheet, runs, seed) for seed in seeds[:look]]
        except _Unknown as problem:
            return Verdict(claim, "undecided", None, paper=paper, unit=unit, reason=str(problem))
        verdict = replace(_at_look(claim, by_seed), paper=paper, unit=unit)
        if verdict.word != "undecided":
            break
    return verdict


def _at_look(claim: Claim, by_seed: list[dict[str, float]]) -> Verdict:
    """The verdict at one look, of its seeds alone."""
    seeds = len(by_seed)
    if claim.statistic == "every":
        verdict = _every(claim, by_seed)
    else:
        effect = Estimate.of([_statistic(claim, values) for values in by_seed], LEVELS.get(seeds, ERROR))
        word = effect.verdict(claim)
        if claim.statistic == "share" and not effect.deviation and not share_is_clear(seeds, LEVELS.get(seeds, ERROR)):
            word = "undecided"
        verdict = Verdict(claim, word, effect)
    if seeds not in LEVELS:
        return replace(
            verdict, word="undecided", reason=f"the first look is after {next_look(0)} seeds", can_continue=True
        )
    undecided = verdict.word == "undecided"
    return replace(
        verdict,
        visible=visible(seeds, verdict.effect.deviation if verdict.effect else 0.0),
        reason=_undecided(claim) if undecided else "",
        can_continue=undecided and next_look(seeds) is not None,
    )


def _every(claim: Claim, by_seed: list[dict[str, float]]) -> Verdict:
    """All pairs hold, one does not, or neither is known."""
    level = LEVELS.get(len(by_seed), ERROR)
    columns = {pair: [values[pair[0]] - values.get(pair[1], 0.0) for values in by_seed] for pair in claim.pairs}
    found = {pair: Estimate.of(values, level) for pair, values in columns.items()}
    words = [estimate.verdict(claim) for estimate in found.values()]
    worst = _worst(claim, [estimate.mean for estimate in found.values()])
    pair = next(pair for pair, estimate in found.items() if estimate.mean == worst)
    against = len(by_seed) > 1 and any(one_is_negative(side, level / 2) for side in _inside(claim, columns.values()))
    word: Word = "holds" if set(words) == {"holds"} else "does not hold" if against else "undecided"
    shown = " over ".join(filter(None, pair)) if len(columns) > 1 else ""
    return Verdict(claim, word, effect=found[pair], shown=shown, holding=(words.count("holds"), len(words)))


def _inside(claim: Claim, columns: Collection[Sequence[float]]) -> list[list[list[float]]]:
    """How far each number is inside what the claim says; on both sides, if it has two."""
    above = [[value - claim.margin for value in values] for values in columns]
    below = [[claim.margin - value for value in values] for values in columns]
    if claim.direction == "equal":
        return [[[value + claim.margin for value in values] for values in columns], below]
    return [above if claim.direction == "greater" else below]


def _absent(cells: Sequence[str], why: Mapping[str, str]) -> str:
    """Reasons, each with its cells."""
    by_reason: dict[str, list[str]] = {}
    for cell in cells:
        by_reason.setdefault(why.get(cell, "no finished run"), []).append(cell)
    return "; ".join(f"{reason} ({', '.join(found)})" for reason, found in by_reason.items())


def _undecided(claim: Claim) -> str:
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
    elif metric in REACHED:
        level = TargetValue(sheet.paper.metric, sheet.paper.reach / _factor(metric, sheet))
        found = cost_to(RunGroup("", (record,)), level, REACHED[metric])
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
