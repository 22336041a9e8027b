"""Reading files that we did not write. Bad input becomes a `DataError` that names the file, the line and the field.

images.py, exif.py, decoded.py      pictures: decoded in one place and cached
tables.py, entries.py               CSV and JSON, line by line
matfiles.py, mat5.py                MATLAB files: plain arrays of numbers only
archives.py                         zip and tar: all of an archive or nothing
weights.py                          weight files, converted to safetensors in a restricted process
folders.py, layouts.py, probe.py    what is in a folder, and which data set it is
cache.py, index_folder.py           files that Wayfare writes itself
certificates.py                     keys and certificates
"""
