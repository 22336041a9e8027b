"""Encounters: phones that improve each other's models when they meet, with no server (FedTour).

It trains the model of any task that provides "tally" (counts of right answers by class), such as `objects`. Every
device has its own model. A round is one slot of a day of traces, or several.

Where the paper is:

    Sect. III, traces, contacts within radius R, one peer a slot (Eq. 5)     traces.py, contacts.py, near.py
    Eq. 4, the classes that a device's owner cares about                     areas.py
    Eq. 6, the budget L of transmissions and receptions                      policies/fedtour.py, slots.py
    Sect. IV-A, the study of merged models                                   laboratory.py, predictors/study.py
    Sect. IV-B, the regressor                                                predictors/regressor.py
    Algorithm 1                                                              policies/fedtour.py, beginning.py

The path of an encounter through the files:

    traces.py (trace_*.py, contact_files.py)             where devices were, from any of the usual files
    contacts.py                                          who can talk to whom in each slot
    topology.py                                          [topology] of a recipe: rounds of slots
    scenario.py                                          what does not change during a run
    beginning.py                                         every device's first model and its budget
    state.py                                             what does: models as rows of a file, and columns of numbers
    slots.py                                             a slot: meetings, decisions, exchanges, merges
    policies/, predictors/                               [exchange] of a recipe: who asks for whose model
    core/gate.py                                         every message to a device goes through it
    judging.py                                           the accuracy of every device's model
    movie.py, record.py, report.py, player.py            what is recorded of a day and how it is shown

A device whose first model is refused at the gate continues with the base model; a refused merge changes nothing.
"""
