"""Pages: one HTML file that opens offline, made from a template and plain data.

page.py                 `render("locate.html", ...)`: templates/NAME.html with static/NAME.css and .js inlined
figures.py, tables.py   plotly figures; tables for the terminal, and numbers in words
record.py               a run folder, read back
compare.py, partition.py, dataset.py, semantic_split.py   pages that no task owns
thumbnails.py, maps.py, counting.py                       what pages are made from
"""
