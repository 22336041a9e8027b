"""What a curious server learns from the replies of devices when nothing further protects them, measured by attacks.

    overheard.py        a short run of the experiment, in which somebody reads every message
    classes.py          which classes a device has, from the signs of its update to the last layer
    membership.py       whether a given sample was trained on, from how its loss changed
    reconstruction.py   what a device's samples look like, from one layer's gradients
    figures.py          a figure beside what guessing gives
    page.py             the same for a terminal

The attacks are plain ones: each is a few lines and trains nothing. What they find is there; what they do not find, a
better attack may.
"""

from wayfare.leakage.overheard import measure

__all__ = ["measure"]
