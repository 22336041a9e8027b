"""The gates through which foreign files come in. Bad input becomes a `DataError` that names file, line and field.

images.py, exif.py, decoded.py      pictures: decoded in one place, kept in the cache
tables.py, entries.py               CSV and JSON, line by line
matfiles.py, mat5.py                MATLAB files: plain arrays of numbers only
archives.py                         zip and tar: all of an archive or nothing
weights.py                          weight files, converted to safetensors in a restricted process
folders.py, layouts.py, probe.py    what is in a folder, and which data set it is
cache.py, index_folder.py           what we write ourselves
"""
