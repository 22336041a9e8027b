"""Unpacking: all of a good archive, and not one byte of a bad one."""

from __future__ import annotations

import gzip
import hashlib
import io
import stat
import struct
import tarfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from wayfare.core.errors import DataError
from wayfare.io.archives import unpack

GOOD = {"cats/1.jpg": b"one", "cats/2.jpg": b"two" * 1000, "dogs/été.jpg": b"", "readme.txt": b"hello"}
Member = tuple[str, bytes]


def zipped(*members: Member, kind: int = 0, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, data in members:
            info = zipfile.ZipInfo(name)
            info.compress_type = method
            info.external_attr = (kind | 0o644) << 16 if kind else 0
            archive.writestr(info, data)
    return out.getvalue()


def tarred(*members: Member | tarfile.TarInfo, mode: str = "w") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as archive:  # type: ignore[call-overload]
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                archive.addfile(member)
            else:
                info = tarfile.TarInfo(member[0])
                info.size = len(member[1])
                archive.addfile(info, io.BytesIO(member[1]))
    return out.getvalue()


def special(name: str, kind: bytes, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


def header(name: str, kind: bytes, size: int) -> bytes:
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, size
    return info.tobuf(tarfile.GNU_FORMAT)


def duplicate_zip() -> bytes:
    """Two entries of one name, which zipfile warns about when it writes them."""
    data = zipped(("a.jpg", b"1"), ("b.jpg", b"2"))
    return data.replace(b"b.jpg", b"a.jpg")


def nul_zip() -> bytes:
    return zipped(("a_b.jpg", b"1")).replace(b"a_b.jpg", b"a\x00b.jpg")


def lying_zip() -> bytes:
    """The table of contents says 3 bytes; the file unpacks to 300."""
    data = bytearray(zipped(("a.jpg", b"x" * 300), method=zipfile.ZIP_STORED))
    directory = data.rindex(b"PK\x01\x02")
    data[directory + 24 : directory + 28] = struct.pack("<I", 3)
    return bytes(data)


def encrypted_zip() -> bytes:
    data = bytearray(zipped(("a.jpg", b"x" * 30)))
    data[data.rindex(b"PK\x01\x02") + 8] |= 1
    return bytes(data)


def damaged_zip() -> bytes:
    """The first file is good and the second is not: by then something has been written."""
    data = bytearray(zipped(("a.jpg", b"x" * 300), ("b.jpg", b"y" * 300), method=zipfile.ZIP_STORED))
    data[data.index(b"yyyy")] = 0
    return bytes(data)


BAD: dict[str, tuple[Callable[[], bytes], str]] = {
    "zip: parent": (lambda: zipped(("../evil.txt", b"x")), "points outside"),
    "zip: parent deep": (lambda: zipped(("ok.txt", b"x"), ("a/b/../../../evil.txt", b"x")), "points outside"),
    "zip: absolute": (lambda: zipped(("/evil.txt", b"x")), "absolute"),
    "zip: drive": (lambda: zipped(("C:/evil.txt", b"x")), "absolute"),
    "zip: backslash": (lambda: zipped(("..\\evil.txt", b"x")), "backslash"),
    "zip: control character": (lambda: zipped(("a\nb.txt", b"x")), "control"),
    "zip: nul": (nul_zip, "control"),
    "zip: symlink": (lambda: zipped(("link", b"/etc"), kind=stat.S_IFLNK), "link or a device"),
    "zip: fifo": (lambda: zipped(("pipe", b""), kind=stat.S_IFIFO), "link or a device"),
    "zip: device": (lambda: zipped(("disk", b""), kind=stat.S_IFBLK), "link or a device"),
    "zip: duplicate": (duplicate_zip, "appears twice"),
    "zip: case": (lambda: zipped(("a/Cat.jpg", b"1"), ("a/cat.JPG", b"2")), "differ in case"),
    "zip: case of a folder": (lambda: zipped(("Cat/1.jpg", b"1"), ("cat/2.jpg", b"2")), "differ in case"),
    "zip: accents": (lambda: zipped(("\u00e9.jpg", b"1"), ("e\u0301.jpg", b"2")), "differ in case"),
    "zip: file and folder": (lambda: zipped(("a", b"1"), ("a/b.jpg", b"2")), "appears twice"),
    "zip: bomb": (lambda: zipped(("a.bin", b"\x00" * 30_000_000)), "more than"),
    "zip: many": (lambda: zipped(*((f"{n}.txt", b"") for n in range(1001))), "more than 1000 files"),
    "zip: lying": (lying_zip, ""),
    "zip: encrypted": (encrypted_zip, "encrypted"),
    "zip: lzma": (lambda: zipped(("a", b"x" * 99), method=zipfile.ZIP_LZMA), "unusual method"),
    "zip: damaged": (damaged_zip, ""),
    "zip: cut": (lambda: zipped(*GOOD.items())[:-30], ""),
    "zip: long name": (lambda: zipped(("a" * 300, b"x")), "too long"),
    "zip: dot": (lambda: zipped((".", b"x")), "not the name of a file"),
    "tar: parent": (lambda: tarred(("../evil.txt", b"x")), "points outside"),
    "tar: parent at the end": (lambda: tarred(("a/..", b"x")), "points outside"),
    "tar: absolute": (lambda: tarred(("/evil.txt", b"x")), "absolute"),
    "tar: symlink": (lambda: tarred(special("out", tarfile.SYMTYPE, "/etc"), ("out/evil", b"x")), "is a link"),
    "tar: inner symlink": (lambda: tarred(("a", b"x"), special("b", tarfile.SYMTYPE, "a")), "is a link"),
    "tar: hard link": (lambda: tarred(special("passwd", tarfile.LNKTYPE, "/etc/passwd")), "is a link"),
    "tar: character device": (lambda: tarred(special("zero", tarfile.CHRTYPE)), "device"),
    "tar: fifo": (lambda: tarred(special("pipe", tarfile.FIFOTYPE)), "device"),
    "tar: holes": (lambda: tarred(special("holes", tarfile.GNUTYPE_SPARSE)), "holes"),
    "tar: duplicate": (lambda: tarred(("a", b"1"), ("./a", b"2")), "appears twice"),
    "tar: case": (lambda: tarred(("Straße", b"1"), ("STRASSE", b"2")), "differ in case"),
    "tar: not UTF-8": (lambda: header("\udce9.jpg", b"0", 0) + bytes(1024), "not a name in UTF-8"),
    "tar: claims a terabyte": (lambda: header("a", b"0", 2**40), "more than"),
    "tar: negative": (lambda: header("a", b"0", -512) + bytes(1024), "more than"),
    "tar: long name of a gigabyte": (lambda: gzip.compress(header("x", b"L", 2**30) + bytes(2**20)), "name or header"),
    "tar: slow header": (
        lambda: header("x", b"x", 60_000) + b"1" * 60_416 + header("a", b"0", 0),
        "more than 255 digits",
    ),
    "tar: endless headers": (lambda: (header("x", b"L", 2) + b"a" * 512) * 5000, "too many headers"),
    "tar.gz: parent": (lambda: tarred(("../evil.txt", b"x"), mode="w:gz"), "points outside"),
    "tar.gz: bomb": (lambda: tarred(("a.bin", b"\x00" * 30_000_000), mode="w:gz"), "more than"),
    "tar.gz: cut": (lambda: tarred(("a.bin", bytes(range(256)) * 99), mode="w:gz")[:-40], ""),
    "tar.gz: cut in the second": (lambda: gzip.compress(tarred(("a", b"1" * 600), ("b", b"2" * 6000))[:2500]), ""),
    "neither": (lambda: b"just some text, long enough for a header" * 99, "neither a zip nor a tar"),
    "empty": (lambda: b"", "neither a zip nor a tar"),
}


def tree(folder: Path) -> str:
    """A hash of every name, kind and byte below the folder."""
    found = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        found.update(f"{path.relative_to(folder)} {path.lstat().st_mode}".encode())
        if path.is_file() and not path.is_symlink():
            found.update(path.read_bytes())
    return found.hexdigest()


@pytest.mark.parametrize("name", list(BAD))
def test_a_bad_archive_leaves_no_trace(name: str, tmp_path: Path) -> None:
    make, reason = BAD[name]
    (tmp_path / "archive").write_bytes(make())
    (tmp_path / "beside").mkdir()
    (tmp_path / "beside" / "mine.txt").write_text("mine")
    before = tree(tmp_path)
    began = time.perf_counter()
    with pytest.raises(DataError) as caught:
        unpack(tmp_path / "archive", tmp_path / "beside" / "new", max_files=1000)
    assert time.perf_counter() - began < 2
    assert tree(tmp_path) == before
    assert str(caught.value).startswith(f"{tmp_path / 'archive'}: ")
    assert reason in str(caught.value)


def test_there_are_thirty_bad_archives() -> None:
    assert len(BAD) >= 30


@pytest.mark.parametrize("make", [
    lambda: zipped(*GOOD.items()),
    lambda: zipped(("cats/", b""), *GOOD.items(), method=zipfile.ZIP_STORED),
    lambda: tarred(*GOOD.items()),
    lambda: tarred(*((f"./{name}", data) for name, data in GOOD.items()), mode="w:gz"),
    lambda: tarred(special("./", tarfile.DIRTYPE), special("cats", tarfile.DIRTYPE), *GOOD.items()),
])  # fmt: skip
def test_a_good_archive_comes_out_whole(make: Callable[[], bytes], tmp_path: Path) -> None:
    (tmp_path / "archive").write_bytes(make())
    assert unpack(tmp_path / "archive", tmp_path / "deep" / "new") == len(GOOD)
    root = tmp_path / "deep" / "new"
    assert {str(f.relative_to(root)): f.read_bytes() for f in root.rglob("*") if f.is_file()} == GOOD
    assert [entry.name for entry in root.parent.iterdir()] == ["new"]  # no scratch folder is left


def test_an_empty_target_is_used_and_a_full_one_is_not(tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(zipped(*GOOD.items()))
    (tmp_path / "new").mkdir()
    assert unpack(tmp_path / "a.zip", tmp_path / "new") == len(GOOD)
    before = tree(tmp_path)
    with pytest.raises(DataError, match="already exists"):
        unpack(tmp_path / "a.zip", tmp_path / "new")
    assert tree(tmp_path) == before


def test_modes_are_not_taken_over(tmp_path: Path) -> None:
    info = tarfile.TarInfo("tool")
    info.mode = 0o6777
    (tmp_path / "a.tar").write_bytes(tarred(info))
    unpack(tmp_path / "a.tar", tmp_path / "new")
    assert (tmp_path / "new" / "tool").stat().st_mode & 0o7111 == 0


def test_limits_are_exact(tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(zipped(("a", b"x" * 70), ("b", b"y" * 30)))
    assert unpack(tmp_path / "a.zip", tmp_path / "fits", max_files=2, max_bytes=100) == 2
    with pytest.raises(DataError, match="more than 99 bytes"):
        unpack(tmp_path / "a.zip", tmp_path / "bytes", max_bytes=99)
    with pytest.raises(DataError, match="more than 1 files"):
        unpack(tmp_path / "a.zip", tmp_path / "files", max_files=1)


def test_the_ratio_is_a_limit_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(zipped(("a", b"\x00" * 5_000_000)))  # about 1000 to 1
    with pytest.raises(DataError, match="for an archive of"):
        unpack(tmp_path / "a.zip", tmp_path / "new", max_ratio=100)
    assert unpack(tmp_path / "a.zip", tmp_path / "new", max_ratio=2000) == 1


def test_a_missing_archive_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"absent\.zip: no such file"):
        unpack(tmp_path / "absent.zip", tmp_path / "new")
