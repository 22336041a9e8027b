"""Who is near: a link tells addresses. Here is mDNS on the local network; Bluetooth could be another.

A link announces a device under a random id of each start, with no name, key or position: who it is, it says only to
whom it meets, over TLS.
"""

from __future__ import annotations

import ipaddress
import secrets
import threading
from importlib.util import find_spec
from types import TracebackType
from typing import Any, Protocol, Self

from wayfare.core.errors import ConfigError
from wayfare.io.address import Address

_TYPE = "_wayfare._tcp.local."
_MOST, _MOST_OF_ONE = 256, 4  # devices that are remembered, and addresses of each


class NearbyLink(Protocol):
    """Finds addresses of devices that are near, while it is open."""

    def near(self) -> list[Address]:
        """Those who are there now."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Mdns:
    """Announcements on the local network, by zeroconf."""

    def __init__(self, listen: Address) -> None:
        if find_spec("zeroconf") is None:
            raise ConfigError("--discover needs zeroconf, which is not installed: pip install 'wayfare[meet]'")
        try:
            self._ip = ipaddress.ip_address(listen.host)
        except ValueError as error:
            raise ConfigError(f"--discover needs --listen with an IP address, not {listen.host!r}") from error
        self._listen, self._lock = listen, threading.Lock()
        self._found: dict[str, list[Address]] = {}
        self._name = f"{secrets.token_hex(8)}.{_TYPE}"

    def near(self) -> list[Address]:
        """Those who are there now."""
        with self._lock:
            return [address for addresses in self._found.values() for address in addresses]

    def __enter__(self) -> Self:
        from zeroconf import InterfaceChoice, ServiceBrowser, ServiceInfo, Zeroconf

        host = self._listen.host
        anywhere = self._ip.is_unspecified
        try:
            self._zeroconf = Zeroconf(interfaces=InterfaceChoice.All if anywhere else [host])
        except OSError as error:
            raise ConfigError(f"--discover: mDNS does not work on {host}: {error.strerror or error}") from error
        info = ServiceInfo(
            _TYPE, self._name, port=self._listen.port, parsed_addresses=_own_addresses() if anywhere else [host],
            server=f"{secrets.token_hex(8)}.local.",
        )  # fmt: skip
        self._zeroconf.register_service(info)
        listener: Any = self
        self._browser = ServiceBrowser(self._zeroconf, _TYPE, listener)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._zeroconf.close()

    # ---- called by zeroconf

    def add_service(self, zeroconf: Any, kind: str, name: str) -> None:
        """Somebody is there."""
        if name == self._name:
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
