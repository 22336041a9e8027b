"""Privacy and robust aggregation: the noise, what one client can move, two accountants, accuracy at an epsilon,
attacks against rules, noise between devices that meet.

    python benchmarks/privacy.py [--quick] [--json] [--only noise,accountants,accuracy,attacks,peers] [--out DIR]
                                 [--seeds 3]

Attacks are on scikit-learn's digits, which come with it; accuracy also on fashion pairs and on the town. Exit status 1
when a target is missed.
"""

import sys

from command import main
from privacy_parts import accountants, accuracy, attacks, noise, peers

PARTS = {"noise": noise, "accountants": accountants, "accuracy": accuracy, "attacks": attacks, "peers": peers}

if __name__ == "__main__":
    quick = "fewer draws, rounds and seeds; accuracy is not judged"
    sys.exit(
        main(
            __doc__,
            quick,
            PARTS,
            lambda name, args, out: PARTS[name].measure(args, out / name),
            shown_only={"accuracy", "attacks", "peers"},
        )
    )
