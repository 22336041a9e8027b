"""ONNX Runtime for browsers, from the npm package `onnxruntime-web`: three files, for `wayfare export --to web`.

The package is fetched by the registry's own client (`npm pack`, which runs nothing of it), compared with a known
checksum, and only what a page needs is kept: the module, the WebAssembly build without a GPU, and the licence, which
the package names (MIT) without bringing its text.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from wayfare.core.errors import DataError
from wayfare.downloads.fetching import NpmPackage, Progress, npm_archive
from wayfare.io.archives import unpack
from wayfare.io.cache import cache_dir, new_folder

PACKAGE = NpmPackage(
    "onnxruntime-web@1.30.0",
    sha512="q0y+JrrtukXSzsBWEMccVfqX25LRmosXHF+CaRJmg8pZClzcV7svNc4rKY3jL02Vb7QmRMDs1SigqR4CXAfKYQ==",
    bytes=33_106_585,
    by_hand="or copy onnxruntime-web from a machine that has it",
)
LICENCE = "LICENSE"
FILES = {  # in the package, and as a page loads them: names that every static server has a type for
    "dist/ort.wasm.min.mjs": "ort.js",
    "dist/ort-wasm-simd-threaded.mjs": "ort-wasm.js",
    "dist/ort-wasm-simd-threaded.wasm": "ort-wasm.wasm",
}
_MIT = """ONNX Runtime Web 1.30.0, https://github.com/microsoft/onnxruntime

MIT License

Copyright (c) Microsoft Corporation

Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated
documentation files (the "Software"), to deal in the Software without restriction, including without limitation the
rights to use, copy, modify, merge, publish, distribute, sublicense, and/or sell copies of the Software, and to permit
persons to whom the Software is furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all copies or substantial portions of the
Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE
WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR
COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR
OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
"""


def folder() -> Path:
    """Where it is in the cache."""
    return cache_dir() / PACKAGE.name.replace("@", "-")


def is_there() -> bool:
    """Whether all of it is in the cache."""
    return all((folder() / name).is_file() for name in (*FILES.values(), LICENCE))


def onnxruntime_web(progress: Progress | None = None) -> Path:
    """Fetch it (33 MB) and return its folder; fetched only if it is absent."""
    report = progress or (lambda what, done, total: None)
    target = folder()
    if is_there():
        return target
    with new_folder(target) as part:
        if part is not None:
            archive = npm_archive(PACKAGE, cache_dir() / "downloads", report)
            unpack(archive, part / "files", max_files=1000, max_bytes=2**29)
            for name, kept in FILES.items():
                (part / "files" / "package" / name).replace(part / kept)
            shutil.rmtree(part / "files")
            (part / LICENCE).write_text(_MIT, encoding="utf-8")
    shutil.rmtree(cache_dir() / "downloads", ignore_errors=True)
    return target


def needed() -> Path:
    """Its folder in the cache; an error that says how to get it, if it is not there."""
    if not is_there():
        raise DataError("ONNX Runtime for browsers is not in the cache", remedy="wayfare data get onnxruntime-web")
    return folder()
