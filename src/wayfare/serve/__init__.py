"""The web application: `wayfare serve`. Use trained models, watch runs, look at data and at a federation, in a browser.

It is a second front to the same Python API as the command line, and its answers are the same JSON. A photo's way:

    uploads.py        reads the request's body, within its limits, and hands the bytes to
    decoder.py        a process in a sandbox that decodes them and does nothing else; what comes back are pixels
    photos.py         keeps these under an id until the server ends; the file itself is gone by then
    answering.py      asks
    model_worker.py   a process that holds indexes and models, and calls places.locate, hashing.search, scenes.graph
    answer_views.py   turns the JSON into what a page shows; templates/ draw it

    application.py    puts the parts together; launch.py starts it; access.py lets nobody else in; connections.py ends
                      those that only wait
    api_routes.py     /api/v1; page_routes.py, run_routes.py, data_routes.py, federation_routes.py: pages
    run_watch.py      looks at the run folders, once for all browsers; run_control.py starts and stops runs
    run_forms.py      makes a form of a recipe's settings

The server's own process decodes no picture and holds no model. It talks with the others in JSON and bytes (frames.py).
No address that a browser may send is a path: everything is asked for by an id.
"""
