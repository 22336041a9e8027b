"""A finished run for other programs: ONNX, ExecuTorch, and a web page that answers in the browser.

    exporter.py    `export`: what is written where, and the manifest `model.json`
    onnx_file.py   ONNX, and running it with ONNX Runtime
    eight_bits.py  weights of an ONNX network in 8 bits
    pte_file.py    ExecuTorch, and running it
    agreement.py   whether a written network says what the run's does, measured on the run's own pictures and texts
    site.py        a folder of static files: a page, ONNX Runtime for browsers, the network, and an index
    place_files.py, word_files.py   the index of a site: of places, of search
    static/        the page, its style and its scripts

What a run offers is in its `FinishedRun.portable`: one network for each thing that it takes. Preparing a picture or a
text is not part of a network; the manifest says how it is done.
"""
