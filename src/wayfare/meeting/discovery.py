"""Who is near: links, which announce a device and say at which addresses others can be called.

An announcement has a random id, which changes every quarter of an hour, and no name, key or position: who a device is,
it says only to those that connect, over TLS. Another kind of announcement (over Bluetooth Low Energy, say) is one more
class with these members; meetings are held over the addresses that it finds.
"""

from __future__ import annotations

import ipaddress
import secrets
import threading
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from types import TracebackType
from typing import Any, Protocol, Self

from wayfare.core.errors import ConfigError
from wayfare.io.address import Address

_TYPE = "_wayfare._tcp.local."
_MOST, _MOST_OF_ONE = 256, 4  # devices that are remembered, and addresses of each
_ROTATE = 900.0  # seconds until an announcement gets another id


class PeerLink(Protocol):
    """A way to be found and to find others. It announces from `with` on."""

    def near(self) -> Iterable[Address]:
        """Where others can be called now."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class GivenAddresses:
    """Devices whose addresses are known. Nothing is announced."""

    def __init__(self, addresses: Sequence[Address]) -> None:
        self._addresses = addresses

    def near(self) -> Sequence[Address]:
        """All of them: who is not there does not answer."""
        return self._addresses

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


class Mdns:
    """Announcements on the local network, by zeroconf."""

    def __init__(self, listen: Address, rotate: float = _ROTATE) -> None:
        if find_spec("zeroconf") is None:
            raise ConfigError("--discover needs zeroconf, which is not installed: pip install 'wayfare[meet]'")
        try:
            self._ip = ipaddress.ip_address(listen.host)
        except ValueError as error:
            raise ConfigError(f"--discover needs --listen with an IP address, not {listen.host!r}") from error
        self._listen, self._lock = listen, threading.Lock()
        self._found: dict[str, list[Address]] = {}
        self._rotate, self._ended = rotate, threading.Event()
        self._names: set[str] = set()  # its own, which it hears too

    def near(self) -> list[Address]:
        """Those who are there now."""
        with self._lock:
            return [address for addresses in self._found.values() for address in addresses]

    def names(self) -> list[str]:
        """The random ids under which they announce themselves."""
        with self._lock:
            return [name.removesuffix(f".{_TYPE}") for name in self._found]

    def __enter__(self) -> Self:
        # zeroconf and ifaddr are optional: the extra "meet"
        from zeroconf import InterfaceChoice, ServiceBrowser, ServiceInfo, Zeroconf

        host = self._listen.host
        anywhere = self._ip.is_unspecified
        try:
            self._zeroconf = Zeroconf(interfaces=InterfaceChoice.All if anywhere else [host])
        except OSError as error:
            raise ConfigError(f"--discover: mDNS does not work on {host}: {error.strerror or error}") from error
        addresses = _own_addresses() if anywhere else [host]

        def announced() -> ServiceInfo:
            name = f"{secrets.token_hex(8)}.{_TYPE}"
            with self._lock:
                self._names.add(name)
            info = ServiceInfo(
                _TYPE, name, port=self._listen.port, parsed_addresses=addresses,
                server=f"{secrets.token_hex(8)}.local.",
            )  # fmt: skip
            self._zeroconf.register_service(info)
            return info

        def rotating(info: ServiceInfo) -> None:
            while not self._ended.wait(self._rotate):
                self._zeroconf.unregister_service(info)
                info = announced()

        self._thread = threading.Thread(target=rotating, args=(announced(),), daemon=True)
        self._thread.start()
        listener: Any = self
        self._browser = ServiceBrowser(self._zeroconf, _TYPE, listener)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join(5)
        self._zeroconf.close()

    # ---- called by zeroconf

    def add_service(self, zeroconf: Any, kind: str, name: str) -> None:
        """Somebody is there."""
        with self._lock:
            if name in self._names:
                return
        info = zeroconf.get_service_info(kind, name, timeout=3000)
        if info is not None and info.port and (addresses := info.parsed_addresses()):
            with self._lock:
                if len(self._found) < _MOST:
                    self._found[name] = [Address(each, info.port) for each in addresses[:_MOST_OF_ONE]]

    update_service = add_service

    def remove_service(self, zeroconf: Any, kind: str, name: str) -> None:
        """Somebody has gone."""
        with self._lock:
            self._found.pop(name, None)


def _own_addresses() -> list[str]:
    """Of all network interfaces; those that only this machine reaches, if there are no others."""
    import ifaddr

    found = [str(ip.ip) for adapter in ifaddr.get_adapters() for ip in adapter.ips if ip.is_IPv4]
    return [each for each in found if not ipaddress.ip_address(each).is_loopback] or found
