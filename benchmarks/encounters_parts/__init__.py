"""The parts of benchmarks/encounters.py."""
