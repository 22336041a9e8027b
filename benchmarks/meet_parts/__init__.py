"""The parts of benchmarks/meet.py."""
