"""The parts of benchmarks/hashing.py."""
