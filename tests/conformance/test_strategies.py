"""Every strategy there is, and every kind of fault a strategy can have."""

import pytest

from wayfare.components import find, names
from wayfare.testing import STRATEGY_CHECKS, NonConformance, check_strategy


@pytest.mark.parametrize("name", names("strategy"))
def test_every_strategy_conforms(name):
    assert len(check_strategy(find("strategy", name)())) == len(STRATEGY_CHECKS)


FAULTS = {
    "HiddenInSelf": "strategy object changed|hides state",
    "HiddenInModule": "hides state",
    "HiddenInMerge": "hides state|strategy object changed",
    "DependsOnOrder": "order of replies",
    "NoGradient": "no gradient",
    "AttributeMemory": "do not survive",
    "LiveMemory": "live parameters",
    "ChangesMessage": "changed the message",
    "ChangesState": "changed the state",
    "UndeclaredSection": "refuses honest replies|sections",
    "MutableSettings": "frozen dataclass",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_strategy_is_caught(fault, faulty):
    with pytest.raises(Exception, match=FAULTS[fault]) as caught:
        check_strategy(getattr(faulty, fault)())
    assert isinstance(caught.value, NonConformance) or fault == "UndeclaredSection"
