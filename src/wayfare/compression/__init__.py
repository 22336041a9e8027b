"""Fewer bytes: what travels in place of a model, `[compression]` in a recipe.

A device sends its change (its model minus the one it received) in few bits: quantised (`quantise`), only the largest
entries (`topk`), or as a product of two thin matrices (`lowrank`). What is lost stays on the device and is added to its
next change (error feedback). On the way to a device, weights can be quantised as well.

1. `engine.py`: around the engine, packs messages and unpacks replies, so strategies and the gate see plain models
2. `packing.py`: which tensors are packed, error feedback; runs on the device (`engines/programs.py`)
3. `coders.py`: one class for each way to write a tensor
"""
