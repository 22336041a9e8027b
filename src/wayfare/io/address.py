"""HOST:PORT."""

from __future__ import annotations

from dataclasses import dataclass

from wayfare.core.errors import ConfigError


@dataclass(frozen=True)
class Address:
    """Where a server listens."""

    host: str
    port: int

    @classmethod
    def read(cls, text: str) -> Address:
        """From HOST:PORT."""
        host, _, port = text.rpartition(":")
        if not host or not (port.isascii() and port.isdecimal()) or not 0 < int(port) < 65536:
            raise ConfigError(f"{text!r} is not an address: expected HOST:PORT, such as 127.0.0.1:8000")
        return cls(host.strip("[]"), int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
