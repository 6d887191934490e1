"""An emulated machine room on one host: nodes as network namespaces with links of their own.

Every node has its own address behind a rate-limited link; one more namespace plays the
file server, whose files the nodes mount with sshfs over its own limited link. Real MPI runs
over TCP between the nodes. Needs root, iproute2, util-linux and, for the server, sshfs and
sftp-server. Names carry the process id, so that a room whose process died can be removed.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from sbtrain_jobs.process import end_session, run_command, start_process

PREFIX = "sbr"
SFTP_SERVERS = ("/usr/lib/openssh/sftp-server", "/usr/libexec/openssh/sftp-server")
PORT = 2222
# Real links lose a little to headers; tbf counts them.
HEADERS = 1448 / 1514
# Shared memory and links to neighbours' files off: between real nodes there are none.
# TCP through each node's own device.
MPI_OVER_TCP = {
    "MPIR_CVAR_NOLOCAL": "1",
    "MPIR_CVAR_CH4_NETMOD": "ofi",
    "FI_PROVIDER": "tcp",
    "FI_TCP_IFACE": "eth0",
    "SBTRAIN_STAGE_SHARE": "never",
}

# Serves sftp to whoever connects: one sftp-server per connection.
_SERVE = """
import os, socket, sys
listener = socket.create_server(("", int(sys.argv[2])), backlog=64)
sys.stdout.write("ready\\n"); sys.stdout.flush()
while True:
    connection, _ = listener.accept()
    if os.fork() == 0:
        os.dup2(connection.fileno(), 0); os.dup2(connection.fileno(), 1)
        os.execv(sys.argv[1], [sys.argv[1]])
    connection.close()
"""


def sftp_server() -> str | None:
    return next((path for path in SFTP_SERVERS if Path(path).exists()), None)


def why_not(*, with_server: bool) -> str | None:
    """Why there can be no room here, or None."""
    if os.geteuid() != 0:
        return "an emulated machine room needs root"
    tools = ["ip", "tc", "nsenter", *(["sshfs", "fusermount3"] if with_server else [])]
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if with_server and sftp_server() is None:
        missing.append("sftp-server")
    if missing:
        return f"an emulated machine room needs {', '.join(missing)}"
    return None


def _ip(*words: str) -> str:
    return run_command(["ip", *words], timeout_s=60).stdout


@dataclass(slots=True)
class Room:
    """A machine room that is up.

    Attributes:
        names: of the namespaces of the nodes.
        mounts: where each node sees the server's folder; empty without a server.
    """

    prefix: str
    names: list[str]
    server: str
    link_bytes_per_s: float
    mounts: list[Path] = field(default_factory=list)

    def inside(self, node: int) -> list[str]:
        """What to put before a command to run it on a node."""
        return ["nsenter", f"--net=/run/netns/{self.names[node]}"]

    def server_sent_bytes(self) -> int:
        """Bytes that have left the server's link."""
        path = Path(f"/sys/class/net/{self.prefix}s/statistics/rx_bytes")
        return int(path.read_text())


def clean_dead_rooms() -> None:
    """Remove namespaces and links of rooms whose process is gone."""
    names = [line.split()[0] for line in _ip("netns", "list").splitlines() if line]
    links = re.findall(rf"^\d+: ({PREFIX}\d+\w+)[@:]", _ip("-o", "link"), re.MULTILINE)
    for name in {*names, *links}:
        match = re.match(rf"{PREFIX}(\d+)\D", name)
        if match and not Path(f"/proc/{match[1]}").exists():
            _remove(name)


def _remove(name: str) -> None:
    run_command(["ip", "netns", "del", name], timeout_s=60, check="keep")
    run_command(["ip", "link", "del", name], timeout_s=60, check="keep")


@contextmanager
def machine_room(
    nodes: int, *, link_mbit: int, server_mbit: int, shared: Path | None, work: Path
) -> Iterator[Room]:
    """A room of some nodes; `shared` is the folder that the server gives to all.

    Args:
        link_mbit: rate of each node's link, either way.
        server_mbit: rate of the server's link.
        work: folder for the mount points.
    """
    clean_dead_rooms()
    prefix = f"{PREFIX}{os.getpid()}"
    room = Room(
        prefix=prefix,
        names=[f"{prefix}n{node + 1}" for node in range(nodes)],
        server=f"{prefix}s",
        link_bytes_per_s=link_mbit * 1e6 / 8 * HEADERS,
    )
    processes = []
    try:
        _ip("link", "add", f"{prefix}b", "type", "bridge")
        _ip("link", "set", f"{prefix}b", "up")
        for number, name in enumerate([*room.names, room.server], start=1):
            rate = server_mbit if name == room.server else link_mbit
            _connect(name, bridge=f"{prefix}b", address=f"10.213.0.{number}", rate_mbit=rate)
        if shared is not None:
            processes.append(_serve(room))
            for node in range(nodes):
                mount = work / f"mount-{node + 1}"
                mount.mkdir(exist_ok=True)
                _mount(room, node, f"10.213.0.{nodes + 1}", shared, mount)
                room.mounts.append(mount)
        yield room
    finally:
        for mount in room.mounts:
            run_command(["fusermount3", "-u", "-z", str(mount)], timeout_s=60, check="keep")
        for process in processes:
            end_session(process)
            process.wait()
        for name in (*room.names, room.server, f"{prefix}b"):
            _remove(name)


def _connect(name: str, *, bridge: str, address: str, rate_mbit: int) -> None:
    """A namespace on the bridge, its link limited in both directions."""
    _ip("netns", "add", name)
    _ip("link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name)
    _ip("link", "set", name, "master", bridge, "up")
    _ip("-n", name, "addr", "add", f"{address}/16", "dev", "eth0")
    _ip("-n", name, "link", "set", "eth0", "up")
    _ip("-n", name, "link", "set", "lo", "up")
    limit = ["root", "tbf", "rate", f"{rate_mbit}mbit", "burst", "128kb", "latency", "50ms"]
    run_command(["tc", "qdisc", "add", "dev", name, *limit], timeout_s=60)
    run_command(["tc", "-n", name, "qdisc", "add", "dev", "eth0", *limit], timeout_s=60)


def _serve(room: Room):
    server = sftp_server() or ""
    inside = ["nsenter", f"--net=/run/netns/{room.server}"]
    return start_process([*inside, sys.executable, "-c", _SERVE, server, str(PORT)])


def _mount(room: Room, node: int, address: str, shared: Path, mount: Path) -> None:
    options = f"directport={PORT},ro,max_conns=1,auto_unmount"
    argv = [*room.inside(node), "sshfs", "-o", options, f"{address}:{shared}", str(mount)]
    deadline = time.monotonic() + 20
    while True:
        result = run_command(argv, timeout_s=30, check="keep")
        if result.returncode == 0 and os.path.ismount(mount):
            return
        if time.monotonic() > deadline:
            raise RuntimeError(f"sshfs: {result.stderr.strip()}")
        time.sleep(0.2)


__all__ = ["MPI_OVER_TCP", "Room", "machine_room", "why_not"]
