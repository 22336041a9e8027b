"""Before the first slot: the common base model, every device's first model, and its budget (Algorithm 1, lines 1-5)."""

from __future__ import annotations

from dataclasses import replace

from wayfare.core.bundle import Bundle
from wayfare.core.errors import ConfigError
from wayfare.core.exchange import Columns, DeviceFacts, Exchange
from wayfare.core.federation import Federation
from wayfare.core.gate import Gate, Refusal, merged
from wayfare.encounters.judging import scores
from wayfare.encounters.laboratory import base_model, lesson
from wayfare.encounters.scenario import Scenario
from wayfare.encounters.state import EncounterState


def common_base(scenario: Scenario, federation: Federation) -> Bundle:
    """The initial network, or one trained on public pictures and given a new head."""
    steps = scenario.settings.base_iterations
    if not steps:
        return scenario.initial
    federation.progress("training the base model", 0, 0)
    gate = federation.gate(0)
    return base_model(
        gate, scenario.strategy, scenario.task, start=scenario.initial, samples=scenario.public, iterations=steps
    )


def train_first_models(state: EncounterState, gate: Gate) -> bool:
    """Some devices train on what they hold; when all have, the policy sets their budgets.

    A device whose first model is refused at the gate continues with the base model. Return whether all were refused.
    """
    scenario, base = state.scenario, state.base
    first = (gate.round - 1) * scenario.settings.together
    part = list(range(first, min(first + scenario.settings.together, len(scenario.ids))))
    given = ((i, _first_lesson(scenario, base, i)) for i in part)
    lessons = {scenario.ids[i]: (i, message) for i, message in given if message is not None}
    requests = ((id, message) for id, (_, message) in lessons.items())
    admitted = 0
    strategy = scenario.strategy
    for id, reply in gate.run("train", requests, strategy.expects(base), strategy.values(base)):
        try:
            state.set_model(lessons[id][0], merged(strategy, base, [(id, reply)]))
            admitted += 1
        except Refusal as refusal:
            gate.refuse(id, refusal)
    if scenario.policy.scored:
        state.columns["score"][part] = scores(state, gate, part)
    if part[-1] == len(scenario.ids) - 1:
        facts = replace(scenario.facts, score=state.columns["score"])
        state.columns |= budgets_of(scenario.policy, facts)
    return bool(lessons) and not admitted


def _first_lesson(scenario: Scenario, base: Bundle, i: int) -> Bundle | None:
    """Phones train on what they hold. Trained signage learns from the public pictures of the objects around it."""
    settings, message = scenario.settings, scenario.strategy.send(base, scenario.ids[i])
    if not scenario.contacts.stationary[i]:
        return message if len(scenario.samples[i]) else None
    if settings.signage != "trained":
        return None
    given = scenario.public[scenario.areas.targets[i][scenario.labels[scenario.public]]]
    return lesson(message, given, settings.base_iterations) if len(given) else None


def budgets_of(policy: Exchange, facts: DeviceFacts) -> Columns:
    """What the policy begins with; refused if it is more than the limit."""
    budgets, name = policy.begin(facts), type(policy).__name__
    if min(budgets["can_send"].min(), budgets["can_take"].min()) < 0:
        raise ConfigError(f"{name} begins with a negative budget")
    if (budgets["can_send"] + budgets["can_take"] > facts.limit).any():
        raise ConfigError(f"{name} begins with more than its limit of exchanges (Eq. 6)")
    return budgets
