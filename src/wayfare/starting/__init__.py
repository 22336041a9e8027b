"""From somebody's folder to a recipe: what `wayfare init` does.

inspect.py    what is in the folder, what is odd about it, and by whom it can be divided
columns.py    which columns of a table are photos, texts and labels
sentences.py  what was found, in words
templates.py  a commented recipe for each kind of data, with the settings that it needs
estimate.py   time, memory and traffic of a run, from a trial of one device
"""
