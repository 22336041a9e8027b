"""Privacy and robust aggregation: the noise, what one client can move, two accountants, accuracy at an epsilon,
attacks against rules.

    python benchmarks/privacy.py [--quick] [--json] [--only noise,accountants,accuracy,attacks] [--out DIR] [--seeds 3]

Accuracy and attacks are on scikit-learn's digits, which come with it. Exit status 1 when a target is missed.
"""

import sys

from command import main
from privacy_parts import accountants, accuracy, attacks, noise

PARTS = {"noise": noise, "accountants": accountants, "accuracy": accuracy, "attacks": attacks}

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
