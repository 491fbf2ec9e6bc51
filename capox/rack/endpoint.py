"""Where the rack listens: an address and a port."""

from __future__ import annotations

import dataclasses
import ipaddress
import re

_ENDPOINT = re.compile(r"^(?:\[(?P<v6>[0-9a-fA-F:.]+)\]|(?P<host>[^\[\]:]+)):(?P<port>[0-9]{1,5})$")


@dataclasses.dataclass(frozen=True)
class Endpoint:
    """An address of this machine and a TCP port; port 0 lets the system choose one.

    Attributes:
        host: an IP address or `localhost`.
        port: 0 to 65535.
    """

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return self.host == "localhost" or ipaddress.ip_address(self.host).is_loopback


def parse_endpoint(text: object) -> Endpoint:
    """The endpoint in a text such as `127.0.0.1:12220`, `[::1]:0` or `localhost:12220`.

    Raises:
        ValueError: it is none.
    """
    match = _ENDPOINT.match(text) if isinstance(text, str) else None
    if match is None:
        raise ValueError("an endpoint is an address and a port, such as `127.0.0.1:12220` or `[::1]:0`")
    host, port = match["v6"] or match["host"], int(match["port"])
    if port > 65535:
        raise ValueError("a port is at most 65535; 0 lets the system choose one")
    if host != "localhost":
        try:
            ipaddress.ip_address(host)
        except ValueError:
            raise ValueError(f"{host} is neither an IP address nor `localhost`; names are not looked up") from None
    return Endpoint(host, port)
