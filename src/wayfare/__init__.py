"""Wayfare: learning from photographs without collecting them.

    from wayfare import Experiment, run
    first = run(Experiment(), "runs/first")
    first.load().evaluate()

Names are loaded when they are first used, so that `import wayfare` and the command line start at once.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wayfare.api import resume as resume
    from wayfare.api import run as run
    from wayfare.components import allow_code as allow_code
    from wayfare.core.bundle import Bundle as Bundle
    from wayfare.core.errors import WayfareError as WayfareError
    from wayfare.core.protocols import Evaluation as Evaluation
    from wayfare.core.protocols import Policy as Policy
    from wayfare.core.protocols import Training as Training
    from wayfare.experiment import Experiment as Experiment
    from wayfare.finished import FinishedRun as FinishedRun
    from wayfare.finished import load as load
    from wayfare.results import Run as Run
    from wayfare.testing import check_strategy as check_strategy
    from wayfare.testing import check_task as check_task

_HOME = {
    "Bundle": "wayfare.core.bundle",
    "Evaluation": "wayfare.core.protocols",
    "Experiment": "wayfare.experiment",
    "FinishedRun": "wayfare.finished",
    "Policy": "wayfare.core.protocols",
    "Run": "wayfare.results",
    "Training": "wayfare.core.protocols",
    "WayfareError": "wayfare.core.errors",
    "allow_code": "wayfare.components",
    "check_strategy": "wayfare.testing",
    "check_task": "wayfare.testing",
    "load": "wayfare.finished",
    "resume": "wayfare.api",
    "run": "wayfare.api",
}
__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'wayfare' has no attribute {name!r}; it has {', '.join(__all__)}")


def __dir__() -> list[str]:
    return __all__
