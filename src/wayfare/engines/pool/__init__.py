"""The engine of many processes on one machine.

- `engine.py`: the pool, as `core/gate.py` sees it.
- `call.py`: one program on many devices: order, window, deadline, what happens when a worker dies.
- `processes.py`: the worker processes and the fork server they come from; what runs in them is `wayfare/worker.py`.
- `shared.py`: tensors in shared memory.
"""
