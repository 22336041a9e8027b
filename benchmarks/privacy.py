"""Privacy and robust aggregation: the noise, what one client can move, accuracy at an epsilon, attacks against rules.

    python benchmarks/privacy.py [--quick] [--json] [--only noise,accuracy,attacks] [--out DIR] [--seeds 3]

Accuracy and attacks are on scikit-learn's digits, which come with it. Exit status 1 when a target is missed.
"""

import sys

from command import main
from privacy_parts import accuracy, attacks, noise

PARTS = {"noise": noise, "accuracy": accuracy, "attacks": attacks}

if __name__ == "__main__":
    quick = "fewer draws, rounds and seeds; accuracy is not judged"
    sys.exit(
        main(
            __doc__,
            quick,
            PARTS,
            lambda name, args, out: PARTS[name].measure(args, out / name),
            shown_only={"accuracy", "attacks"},
        )
    )
