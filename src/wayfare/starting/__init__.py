"""From somebody's folder to a recipe: what `wayfare init` does.

inspect.py    what is in the folder, what is odd about it, and by whom it can be divided
templates.py  a commented recipe for each kind of data, with the settings that it needs
estimate.py   time, memory and traffic of a run, from a trial of one device
"""
