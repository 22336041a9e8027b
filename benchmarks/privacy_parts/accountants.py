"""Two accountants: epsilon as Wayfare computes it (dp-accounting, PLD) beside Opacus' (PRV), where Opacus is installed.

It is not one of Wayfare's dependencies: install it without its own into an environment of its own that sees Wayfare.
"""

from itertools import product

from wayfare.privacy.accounting import epsilon

DELTA = 1e-5
RATES, NOISES, ROUNDS = (0.005, 0.02, 0.1, 0.3, 0.5), (0.8, 1.0, 2.0, 4.0), (1, 10, 50, 200, 1000)


def measure(args, out):
    """Both epsilons of each setting; PRV's error is set to a two-hundredth of epsilon."""
    try:
        from opacus.accountants import PRVAccountant
    except ImportError:
        return {"rows": []}
    rows = []
    for rate, noise, rounds in list(product(RATES, NOISES, ROUNDS))[:: 10 if args.quick else 1]:
        ours = epsilon({(rate, noise): rounds}, DELTA)
        other = PRVAccountant()
        other.history = [(noise, rate, rounds)]
        theirs = other.get_epsilon(DELTA, eps_error=ours / 200)
        rows.append({"rate": rate, "noise": noise, "rounds": rounds, "ours": ours, "theirs": float(theirs)})
    return {"rows": rows}


def targets(figures):
    """What is judged."""
    rows = figures["rows"]
    if not rows:
        return [{"name": "PLD and PRV", "value": None, "target": "needs opacus", "met": None}]
    apart = max(abs(row["ours"] / row["theirs"] - 1) for row in rows)
    return [{"name": f"PLD and PRV in {len(rows)} settings", "value": apart, "target": "at most 0.02 apart",
             "met": apart <= 0.02}]  # fmt: skip


def show(figures, console):
    """Print the settings that are furthest apart."""
    worst = sorted(figures["rows"], key=lambda row: -abs(row["ours"] / row["theirs"] - 1))[:3]
    for row in worst:
        console.print({key: round(value, 4) for key, value in row.items()})
