"""Wayfare: learning from photographs without collecting them.

    from wayfare import Experiment, run
    run(Experiment(), "runs/first")

Names are loaded when they are first used, so that `import wayfare` and the command line start at once.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wayfare.components import allow_code as allow_code
    from wayfare.core.bundle import Bundle as Bundle
    from wayfare.core.errors import WayfareError as WayfareError
    from wayfare.core.protocols import Evaluation as Evaluation
    from wayfare.core.protocols import Policy as Policy
    from wayfare.core.protocols import Training as Training
    from wayfare.experiment import Experiment as Experiment
    from wayfare.runner import resume as resume
    from wayfare.runner import run as run
    from wayfare.testing import check_strategy as check_strategy
    from wayfare.testing import check_task as check_task

_HOME = {
    "Bundle": "wayfare.core.bundle",
    "Evaluation": "wayfare.core.protocols",
    "Experiment": "wayfare.experiment",
    "Policy": "wayfare.core.protocols",
    "Training": "wayfare.core.protocols",
    "WayfareError": "wayfare.core.errors",
    "allow_code": "wayfare.components",
    "check_strategy": "wayfare.testing",
    "check_task": "wayfare.testing",
    "resume": "wayfare.runner",
    "run": "wayfare.runner",
}
__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'wayfare' has no attribute {name!r}; it has {', '.join(__all__)}")
