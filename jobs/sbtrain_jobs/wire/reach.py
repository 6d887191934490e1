"""Finding the supervisor from another node: candidate addresses, tried in order.

The supervisor cannot know which of its names and addresses the nodes can use, so it hands
out all of them and the agent takes the first that answers. A loopback address is only tried
on the supervisor's own host: anywhere else it would lead to a stranger, and the token with it.
"""

from __future__ import annotations

import ipaddress
import socket
import time
from pathlib import Path

from sbtrain_jobs.errors import LaunchError
from sbtrain_jobs.wire.control import keep_alive
from sbtrain_jobs.wire.messages import Message, to_line

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def candidate_addresses(port: int) -> str:
    """`boot id;host:port,host:port,...` of this host, as it goes into the environment."""
    name = socket.gethostname()
    hosts = [*_addresses_of(name), _outward_address(), name, "127.0.0.1"]
    unique = dict.fromkeys(host for host in hosts if host)
    return f"{_boot_id()};" + ",".join(f"{host}:{port}" for host in unique)


def connect_first(
    candidates: str, *, within_s: float, each_s: float = 3.0
) -> tuple[socket.socket, str]:
    """A connection to the first candidate that answers, and its host:port.

    Raises:
        LaunchError: none answered within within_s seconds.
    """
    boot_id, _, listed = candidates.partition(";")
    same_host = bool(boot_id) and boot_id == _boot_id()
    addresses = [a for a in listed.split(",") if a and (same_host or not _leads_home(a))]
    end_s = time.monotonic() + within_s
    said: dict[str, str] = {}
    while True:
        for address in addresses:
            host, _, port = address.rpartition(":")
            left_s = max(0.1, min(each_s, end_s - time.monotonic()))
            try:
                stream = socket.create_connection((host, int(port)), timeout=left_s)
            except OSError as error:
                said[address] = error.strerror or str(error)
                continue
            stream.settimeout(None)
            keep_alive(stream)
            return stream, address
        if time.monotonic() > end_s:
            break
        time.sleep(0.5)
    tried = "; ".join(f"{address}: {words}" for address, words in said.items())
    raise LaunchError(
        f"{socket.gethostname()} cannot reach the supervisor: {tried or 'no address given'}",
        hint="compute nodes must be able to connect to the first node of the job; "
        "ask the site whether a firewall forbids it",
    )


def send_message(stream: socket.socket, message: Message) -> None:
    stream.sendall(to_line(message))


def _addresses_of(name: str) -> list[str]:
    try:
        found = socket.getaddrinfo(name, None, socket.AF_INET, socket.SOCK_STREAM)
    except OSError:
        return []
    return [str(entry[4][0]) for entry in found if not _is_loopback(str(entry[4][0]))]


def _outward_address() -> str:
    """The address of the interface that leads out; nothing is sent to find it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # TEST-NET-1, RFC 5737
        except OSError:
            return ""
        address = str(probe.getsockname()[0])
    return "" if _is_loopback(address) else address


def _leads_home(address: str) -> bool:
    """Whether host:port is, or resolves to, a loopback address here."""
    host = address.rpartition(":")[0]
    if _is_loopback(host):
        return True
    try:
        found = socket.getaddrinfo(host, None, socket.AF_INET, socket.SOCK_STREAM)
    except OSError:
        return False
    return any(_is_loopback(str(entry[4][0])) for entry in found)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _boot_id() -> str:
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""
