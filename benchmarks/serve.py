"""`wayfare serve` under load: 50 people at once, files of a gigabyte and slow clients, and any request at all.

    python benchmarks/serve.py [--quick] [--json] [--only use,harm,fuzz] [--out DIR]

- use: 50 users on indexes of 100,000 photographs. Each uploads a photo of 1280 x 960 pixels that was not asked before,
  and asks where it was taken, what is similar and for its graph; then types words. The Python API alone answers the
  same questions from files, in as many processes as there are cores. The users run on the same cores as the server.
  Two networks describe the photos: the one of the recipe for one's own photos, and DINOv2 where its weights are.
- harm: 4 files of 1 GB and 150 clients that send a byte a second or nothing, while 8 people use it as above.
- fuzz: 10,000 requests that schemathesis makes from the API's description, with all its checks but one. It needs
  schemathesis (pip install schemathesis, in an environment of its own; SCHEMATHESIS names its program `st`).
With --quick: 5,000 photographs, 15 photos asked, some hundred requests; speed is not judged. With --out the indexes are
kept. Exit status 1 when a target is missed.
"""

import sys
from types import SimpleNamespace

from command import left_out, main
from serve_parts import fuzz, harm, material, use

PARTS = {"use": use, "harm": harm, "fuzz": fuzz}
FULL = SimpleNamespace(photographs=100_000, users=50, asked=240)
QUICK = SimpleNamespace(photographs=5_000, users=10, asked=15)


def measure(name, args, out):
    size, folder = (QUICK, out / "quick") if args.quick else (FULL, out / "full")
    if not (folder / "asked").exists():
        material.make(folder, size.photographs, size.asked)
    if name == "use":
        return {"photographs": size.photographs} | use.measure(folder, size.users)
    return harm.measure(folder) if name == "harm" else fuzz.measure(folder, args.quick)


def is_possible(name, quick):
    if name == "fuzz" and not fuzz.program():
        left_out(name, "schemathesis is not installed: SCHEMATHESIS=.../bin/st")
        return False
    return True


if __name__ == "__main__":
    sys.exit(main(__doc__, "two minutes", PARTS, measure, is_possible))
