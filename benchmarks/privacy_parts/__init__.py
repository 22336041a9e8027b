"""The parts of benchmarks/privacy.py."""
