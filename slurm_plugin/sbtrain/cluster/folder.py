"""The folder of one private cluster: its paths, its record (cluster.json) and its lock.

    <folder>/cluster.json   what `up` made: version, ports, conf path, nodes
             daemons.json   pid and start time of each daemon that `up` started
             etc/           slurm.conf and its companions, munge.key (0600); local.conf is
                            the user's: lines of slurm.conf that `up` leaves alone
             run/           the munge socket and pid files
             state/ spool/  what Slurm itself keeps
             log/           one log a daemon
             tmp/<node>/    the scratch of each node (TmpFS)

Slurm puts sockets into these folders, and a socket's path must stay below 108 bytes; nor
does slurm.conf take every character in a path. Where the folder's own path does not fit, a
link to it in a private folder under /tmp stands in for it, and that is recorded.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shlex
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from sbtrain.cluster.errors import ClusterError
from sbtrain_perf.codec import ShapeError, decode, encode
from sbtrain_staging.publish import publish_bytes

RECORD_VERSION = 1

# "/spool/c12/c12_4294967295.4294967294.4294967295" is the longest socket below the root.
_ROOT_MAX_BYTES = 56
_PLAIN_PATH = re.compile(r"[A-Za-z0-9_./+@-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """TCP ports on the loopback address; slurmdbd is 0 where there is no accounting."""

    slurmctld: int
    slurmdbd: int
    nodes: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRecord:
    """What `up` made, as cluster.json keeps it."""

    version: int
    cluster_id: str
    created: str  # ISO 8601, UTC
    slurm_version: str
    host: str
    host_address: str
    user: str
    root: str  # the folder as Slurm sees it
    conf: str
    nodes_per_kind: int
    accounting: bool
    nodes: tuple[str, ...]
    ports: Ports


@dataclass(frozen=True, slots=True)
class ClusterFolder:
    """Paths of one cluster's folder."""

    path: Path

    @classmethod
    def at(cls, path: Path) -> ClusterFolder:
        return cls(Path(os.path.realpath(path)))

    @property
    def option(self) -> str:
        """What `sbtrainctl cluster up` and its like are told of it."""
        return f"--folder {shlex.quote(str(self.path))}"

    @property
    def record_file(self) -> Path:
        return self.path / "cluster.json"

    @property
    def daemons_file(self) -> Path:
        return self.path / "daemons.json"

    @property
    def etc(self) -> Path:
        return self.path / "etc"

    @property
    def log(self) -> Path:
        return self.path / "log"

    @property
    def run(self) -> Path:
        return self.path / "run"

    def create(self) -> None:
        """Make the folder, private to its owner.

        Raises:
            ClusterError: it holds something else, belongs to someone else, or cannot be made.
        """
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.check_owner()
            if not self.record_file.exists() and not self._is_fresh():
                raise ClusterError(
                    f"{self.path} holds files but no cluster.json: not a cluster's folder",
                    hint="choose a new or empty folder with --folder",
                )
            self.path.chmod(0o700)
        except OSError as error:
            raise ClusterError(
                f"cannot make the cluster's folder {self.path}: {error.strerror}",
                hint="choose a folder that you may write with --folder",
            ) from error

    def check_owner(self) -> None:
        """Raises ClusterError when the folder is another user's; root is no exception."""
        if self.path.stat().st_uid != os.getuid():
            raise ClusterError(
                f"{self.path} belongs to another user",
                hint="choose a folder of your own with --folder",
            )

    def create_parts(self, nodes: tuple[str, ...]) -> None:
        for name in ("etc", "run", "log", "state", "spool", "tmp"):
            (self.path / name).mkdir(mode=0o700, exist_ok=True)
        for node in nodes:
            for name in ("spool", "tmp"):
                (self.path / name / node).mkdir(mode=0o700, exist_ok=True)

    def _is_fresh(self) -> bool:
        return {entry.name for entry in self.path.iterdir()} <= {"lock"}

    def read_record(self) -> ClusterRecord | None:
        """The record, or None where no cluster was ever made here.

        Raises:
            ClusterError: cluster.json is not one that this version of sbtrain wrote.
        """
        try:
            data = json.loads(self.record_file.read_text(encoding="utf-8"))
            if isinstance(data, dict) and data.get("version") != RECORD_VERSION:
                raise ShapeError("version", f"expected {RECORD_VERSION}")
            return decode(ClusterRecord, data)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise ClusterError(
                f"cannot read {self.record_file}: {error}",
                hint=f"remove the folder {self.path} when no cluster runs in it",
            ) from error

    def write_record(self, record: ClusterRecord) -> None:
        text = json.dumps(encode(record), indent=2) + "\n"
        publish_bytes(self.record_file, text.encode())

    @contextmanager
    def locked(self, progress: Callable[[str], None] = lambda _: None) -> Iterator[None]:
        """One change of a cluster at a time; the lock ends with the process.

        Raises:
            ClusterError: the folder is gone.
        """
        descriptor = _acquire(self.path / "lock", progress)
        try:
            yield
        finally:
            os.close(descriptor)


def _acquire(path: Path, progress: Callable[[str], None]) -> int:
    gone = ClusterError(f"{path.parent} was removed meanwhile", hint="try again")
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:
        raise gone from None
    _lock(descriptor, progress)
    try:
        if os.path.samestat(os.fstat(descriptor), path.stat()):
            return descriptor
    except FileNotFoundError:
        pass
    os.close(descriptor)
    raise gone


def _lock(descriptor: int, progress: Callable[[str], None]) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        progress("waiting for another change of this cluster to finish")
        fcntl.flock(descriptor, fcntl.LOCK_EX)


def usable_root(folder: ClusterFolder, recorded: str | None) -> str:
    """The path under which Slurm sees the folder: its own, or a link with a short plain one.

    A link that was recorded earlier is used again when it is still ours and leads here.
    """
    own = str(folder.path)
    if len(own.encode()) <= _ROOT_MAX_BYTES and _PLAIN_PATH.fullmatch(own):
        return own
    if recorded is not None and recorded != own and _is_our_link(Path(recorded), folder):
        return recorded
    for base in ("/tmp", os.environ.get("XDG_RUNTIME_DIR", "")):  # noqa: S108 - mkdtemp below
        if base and os.access(base, os.W_OK) and _PLAIN_PATH.fullmatch(base):
            link = Path(tempfile.mkdtemp(prefix="sbt-", dir=base)) / "c"
            link.symlink_to(folder.path)
            return str(link)
    raise ClusterError(
        f"Slurm's sockets cannot live in {own} (too long or unusual), nor is /tmp writable",
        hint="choose a shorter folder with --folder",
    )


def remove_root(folder: ClusterFolder, root: str) -> None:
    """Remove the link that usable_root made, if it made one."""
    link = Path(root)
    if link != folder.path and _is_our_link(link, folder):
        link.unlink()
        with suppress(OSError):
            link.parent.rmdir()


def _is_our_link(link: Path, folder: ClusterFolder) -> bool:
    try:
        holder = link.parent.lstat()
        return (
            stat.S_ISDIR(holder.st_mode)
            and holder.st_uid == os.getuid()
            and stat.S_IMODE(holder.st_mode) == 0o700
            and link.is_symlink()
            and link.readlink() == folder.path
        )
    except OSError:
        return False
