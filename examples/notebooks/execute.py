"""Executes notebooks and keeps in them what they print and show.

    python examples/notebooks/execute.py [NAME...]

Each one runs in an empty folder. The last value of a cell is shown, as in Jupyter: a picture as a picture.
"""

import ast
import base64
import contextlib
import io
import json
import os
import sys
import tempfile
from pathlib import Path

from PIL import Image

FOLDER = Path(__file__).parent


def read(name):
    return json.loads((FOLDER / f"{name}.ipynb").read_text(encoding="utf-8"))


def executed(notebook):
    """A copy with the outputs of this run, in the present folder."""
    namespace, cells = {"__name__": "__main__"}, []
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            cell = cell | {"execution_count": None, "outputs": outputs("".join(cell["source"]), namespace)}
        cells.append(cell)
    return notebook | {"cells": cells}


def outputs(source, namespace):
    """What one cell prints, and its last value."""
    tree, printed = ast.parse(source), io.StringIO()
    namespace["_"] = None
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        last = ast.Assign([ast.Name("_", ast.Store())], tree.body[-1].value)
        tree.body[-1] = ast.fix_missing_locations(ast.copy_location(last, tree.body[-1]))
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "<cell>", "exec"), namespace)
    value = namespace["_"]
    found = []
    if printed.getvalue():
        found.append({"name": "stdout", "output_type": "stream", "text": printed.getvalue().splitlines(keepends=True)})
    if value is not None:
        shown = {"data": shown_as(value), "execution_count": None, "metadata": {}, "output_type": "execute_result"}
        found.append(shown)
    return found


def shown_as(value):
    if not isinstance(value, Image.Image):
        return {"text/plain": repr(value).splitlines(keepends=True)}
    file = io.BytesIO()
    value.convert("RGB").save(file, "JPEG", quality=85)
    words = f"a picture, {value.width}x{value.height}"
    return {"image/jpeg": base64.b64encode(file.getvalue()).decode(), "text/plain": [words]}


def main():
    names = sys.argv[1:] or sorted(path.stem for path in FOLDER.glob("*.ipynb"))
    for name in names:
        here, notebook = Path.cwd(), read(name)
        with tempfile.TemporaryDirectory() as empty:
            os.chdir(empty)
            try:
                notebook = executed(notebook)
            finally:
                os.chdir(here)
        text = json.dumps(notebook, indent=1, ensure_ascii=False)
        (FOLDER / f"{name}.ipynb").write_text(text + "\n", encoding="utf-8")
        print(name)


if __name__ == "__main__":
    main()
