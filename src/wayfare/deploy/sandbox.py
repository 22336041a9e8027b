"""A program in a sandbox of Linux: no network but a loopback of its own, and nothing can be written but given folders.

    python -IS sandbox.py [--writable DIR]... [--read-only DIR]... -- COMMAND...    run it there
    python -IS sandbox.py --check                                                  say why that cannot be done

It needs no rights and no other program: new user, network and mount namespaces, as bubblewrap makes them. Some systems
do not allow that (Docker's default profile, some distributions), and others do not have it. The program keeps its user
and loses all capabilities, so that it cannot undo this. It can still read what its user can read.

Only the standard library is imported: this is started by its path, before anything else.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
import sys

_NEWNS, _NEWUSER, _NEWNET = 0x20000, 0x10000000, 0x40000000
_BIND, _REC, _PRIVATE = 0x1000, 0x4000, 0x40000
_SETATTR, _RDONLY, _HERE, _RECURSIVE = 442, 0x1, -100, 0x8000  # mount_setattr(2) has one number everywhere
_DROP, _LAST_CAPABILITY, _NO_NEW_PRIVILEGES, _DEATH, _TERM = 24, 63, 38, 1, 15


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _done(status: int, what: str) -> None:
    if status:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def enter(writable: list[str], read_only: list[str]) -> None:
    """Put this process into the sandbox."""
    libc, user, group = _libc(), os.getuid(), os.getgid()
    _done(libc.unshare(_NEWUSER | _NEWNS | _NEWNET), "new namespaces")
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:  # noqa: PTH123
            file.write(text)
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh", b"lo", 0x1 | 0x40))  # SIOCSIFFLAGS: up, running
    _done(libc.mount(None, b"/", None, _REC | _PRIVATE, None), "a mount tree of its own")
    for folder in [*writable, *read_only]:
        _done(libc.mount(folder.encode(), folder.encode(), None, _BIND | _REC, None), folder)
    if os.path.isdir("/dev/shm"):  # noqa: PTH112
        _done(libc.mount(b"tmpfs", b"/dev/shm", b"tmpfs", 0, b"mode=1777"), "/dev/shm")
    _set_read_only("/", True)
    for folder in [*writable, "/dev/shm"]:
        if os.path.isdir(folder):  # noqa: PTH112
            _set_read_only(folder, False)
    for folder in read_only:
        _set_read_only(folder, True)
    _give_up_rights(libc)


def _set_read_only(folder: str, on: bool) -> None:
    settings = struct.pack("QQQQ", *((_RDONLY, 0) if on else (0, _RDONLY)), 0, 0)
    flags = _RECURSIVE if on else 0
    arguments = _HERE, folder.encode(), flags, settings, len(settings)
    _done(_libc().syscall(_SETATTR, *arguments), f"read-only {folder}")


def _give_up_rights(libc: ctypes.CDLL) -> None:
    for capability in range(_LAST_CAPABILITY):
        libc.prctl(_DROP, capability, 0, 0, 0)  # those that this kernel lacks fail
    _done(libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0), "no new privileges")
    libc.prctl(_DEATH, _TERM, 0, 0, 0)  # as our parent has asked for


def main(arguments: list[str]) -> None:
    """Enter, then become the command."""
    if arguments == ["--check"]:
        try:
            enter([], [])
        except (OSError, AttributeError) as error:
            sys.exit(str(error))
        return
    options, command = arguments[: arguments.index("--")], arguments[arguments.index("--") + 1 :]
    folders: dict[str, list[str]] = {"--writable": [], "--read-only": []}
    for option, folder in zip(options[::2], options[1::2]):
        folders[option].append(folder)
    enter(folders["--writable"], folders["--read-only"])
    os.execv(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
