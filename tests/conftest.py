"""Modules beside this file are helpers that tests import by name: `from toy import Lab`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
