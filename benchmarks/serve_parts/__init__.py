"""The parts of benchmarks/serve.py: what is served, people who use it, clients that do harm, and any request at all."""
