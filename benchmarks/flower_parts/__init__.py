"""The parts of benchmarks/flower.py."""
