"""Free TCP ports, kept from others until a daemon has them, and who listens where."""

from __future__ import annotations

import random
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sbtrain.cluster.errors import ClusterError

_TRIES = 2000
_LISTEN = "0A"  # state of a listening socket in /proc/net/tcp


@contextmanager
def free_ports(count: int, *, source: random.Random) -> Iterator[tuple[int, ...]]:
    """Ports that nobody has; while the context lasts only a daemon that says SO_REUSEADDR
    (as Slurm's do) can take them, and another search for free ports cannot."""
    low, high = 10240, _first_ephemeral_port()
    held: list[socket.socket] = []
    try:
        for _ in range(_TRIES):
            if len(held) == count:
                break
            taken = _hold(source.randrange(low, high))
            if taken is not None:
                held.append(taken)
        if len(held) < count:
            raise ClusterError(
                f"found only {len(held)} of {count} free TCP ports between {low} and {high}",
                hint="end programs that hold many ports, then try again",
            )
        yield tuple(int(one.getsockname()[1]) for one in held)
    finally:
        for one in held:
            one.close()


def _hold(port: int) -> socket.socket | None:
    """Bound on every address, so that it conflicts with any other use of the port; never
    listening, and reusable only from then on, so that a daemon can bind over it."""
    one = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        one.bind(("0.0.0.0", port))  # noqa: S104 - never listens
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    except OSError:
        one.close()
        return None
    return one


def _first_ephemeral_port() -> int:
    """Below it the kernel gives no port to outgoing connections."""
    try:
        first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        first = 32768
    return first if first > 12000 else 65536


def listening() -> dict[int, frozenset[str]]:
    """The local addresses (IPv4 dotted; IPv6 as the kernel writes it) of each TCP port that
    some process of this network namespace listens on."""
    found: dict[int, set[str]] = {}
    for table in ("tcp", "tcp6"):
        try:
            lines = Path(f"/proc/self/net/{table}").read_text().splitlines()[1:]
        except OSError:
            continue
        for fields in (line.split() for line in lines):
            if fields[3] == _LISTEN:
                address, _, port = fields[1].rpartition(":")
                found.setdefault(int(port, 16), set()).add(_dotted(address))
    return {port: frozenset(addresses) for port, addresses in found.items()}


def address_of(host: str) -> str:
    """The IPv4 address that a host's name stands for on this host; "" where it has none."""
    try:
        found = socket.getaddrinfo(host, None, socket.AF_INET, socket.SOCK_STREAM)
    except OSError:
        return ""
    return str(found[0][4][0])


def _dotted(address: str) -> str:
    if len(address) != 8:
        return address
    return socket.inet_ntoa(int(address, 16).to_bytes(4, sys.byteorder))
