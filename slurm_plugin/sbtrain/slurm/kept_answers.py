"""What Slurm was asked lately, kept for this user, so that a submission costs slurmctld one
question about the queue and the job itself.

What partitions are is kept for a day, and whether they take jobs for an hour, as nodes are; all
is asked anew when slurm.conf or a file that it includes has changed, and what the queue
contradicts within minutes. The queue is asked about each time, but for calls within seconds of
each other. Where there is no slurm.conf to look at nothing is kept for longer than minutes, and
nothing where nothing can be written.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from sbtrain.errors import HomeError, SlurmError
from sbtrain.home import home, made_home
from sbtrain.slurm.client import PartitionInfo, QueuedJob, SlurmClient
from sbtrain.slurm.cluster_config import BY_QOS, ClusterConfig, configuration_text, read_config
from sbtrain.slurm.node_kinds import NO_NODES, Nodes, nodes_of
from sbtrain.slurm.user_limits import NO_LIMITS, UserLimits
from sbtrain_perf.codec import decode, encode

PARTITIONS_S = 86_400.0
STATE_S = 3_600.0  # of partitions and of nodes
AGAIN_S = 300.0  # however often the queue contradicts it
QUEUE_S = 5.0
_SILENCE_S = 600.0  # of the accounting, until it is asked again
_UNSEEN_S = 300.0  # where no file tells that the configuration has changed
_FORM = 6  # of what is kept
_PLACES = ("/etc/slurm/slurm.conf", "/etc/slurm-llnl/slurm.conf", "/run/slurm/conf/slurm.conf")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    """files: what slurm.conf and what it includes looked like, by path. Times are seconds since
    the epoch. limits: None where the accounting was asked in vain."""

    files: dict[str, str]
    form: int = _FORM
    config: ClusterConfig | None = None
    config_at_s: float = 0.0
    limits: UserLimits | None = None
    limits_at_s: float = 0.0
    partitions: tuple[PartitionInfo, ...] = ()
    partitions_at_s: float = 0.0
    nodes: Nodes = NO_NODES
    nodes_at_s: float = 0.0
    queue: tuple[QueuedJob, ...] = ()
    queue_at_s: float = 0.0

    @property
    def current(self) -> bool:
        """The configuration is what it was."""
        same = all(_looks(Path(name)) == seen for name, seen in self.files.items())
        return self.form == _FORM and same


class KeptAnswers:
    """Asks the client where what is kept has aged. Every call raises as the client does.

    Args:
        environ: names the user's home and Slurm's configuration.
    """

    def __init__(
        self,
        client: SlurmClient,
        environ: Mapping[str, str],
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._client = client
        self._environ = environ
        self._now = now
        self._conf = conf = _conf_of(environ)
        # Without a file, the host or the server that is named tells clusters apart.
        place = conf or f"{os.uname().nodename} {environ.get('SLURM_CONF_SERVER', '')}"
        self._name = f"slurm-{hashlib.sha256(str(place).encode()).hexdigest()[:12]}.json"
        self._kept = self._read()

    def config(self) -> ClusterConfig:
        """slurm.conf itself is read where it can be."""
        if self._kept.config is None or self._aged(self._kept.config_at_s, PARTITIONS_S):
            said, at_s = self._client.config(), self._now()
            self._keep(dataclasses.replace(self._kept, config=said, config_at_s=at_s))
            return said
        return self._kept.config

    def limits(self) -> UserLimits:
        """None known where the accounting neither limits jobs nor ranks them, or does not
        answer."""
        config, kept = self.config(), self._kept
        if not config.limits and config.preempt_type != BY_QOS:
            return NO_LIMITS
        if self._aged(kept.limits_at_s, PARTITIONS_S if kept.limits else _SILENCE_S):
            said = None
            with contextlib.suppress(SlurmError):
                said = self._client.limits(config.name)
            self._keep(dataclasses.replace(kept, limits=said, limits_at_s=self._now()))
        said = self._kept.limits or NO_LIMITS
        return said if config.limits else said.unenforced()

    def partitions(self, *, most_s: float = PARTITIONS_S) -> tuple[PartitionInfo, ...]:
        """What was said at most so long ago."""
        if not self._kept.partitions or self._aged(self._kept.partitions_at_s, most_s):
            said, at_s = self._client.partitions(), self._now()
            kept = dataclasses.replace(self._kept, partitions=said, partitions_at_s=at_s)
            self._keep(kept)
        return self._kept.partitions

    def nodes(self, *, most_s: float = STATE_S) -> Nodes:
        if not self._kept.nodes.kinds or self._aged(self._kept.nodes_at_s, most_s):
            said, at_s = nodes_of(self._client.nodes()), self._now()
            self._keep(dataclasses.replace(self._kept, nodes=said, nodes_at_s=at_s))
        return self._kept.nodes

    def queue(self) -> tuple[QueuedJob, ...]:
        if self._aged(self._kept.queue_at_s, QUEUE_S):
            said, at_s = self._client.queue(), self._now()
            self._keep(dataclasses.replace(self._kept, queue=said, queue_at_s=at_s))
        return self._kept.queue

    def _aged(self, at_s: float, most_s: float) -> bool:
        if not any(self._kept.files.values()):
            most_s = min(most_s, _UNSEEN_S)
        return not 0.0 <= self._now() - at_s < most_s

    def _read(self) -> _Kept:
        with contextlib.suppress(OSError, ValueError, RecursionError, HomeError):
            text = (home(self._environ) / self._name).read_text(encoding="utf-8")
            kept = decode(_Kept, json.loads(text))
            if kept.current and (self._conf is None or str(self._conf) in kept.files):
                return kept
        return self._fresh()

    def _fresh(self) -> _Kept:
        if self._conf is None:
            return _Kept(files={})
        read = list[Path]()
        text = configuration_text(self._conf, read)
        return _Kept(
            files={str(path): _looks(path) for path in read},
            config=None if text is None else read_config(text),
            config_at_s=self._now(),
        )

    def _keep(self, kept: _Kept) -> None:
        self._kept = kept
        with contextlib.suppress(OSError, HomeError):
            folder = made_home(self._environ)
            number, name = tempfile.mkstemp(dir=folder, prefix=".slurm-")
            try:
                with os.fdopen(number, "w", encoding="utf-8") as file:
                    json.dump(encode(kept), file)
                Path(name).rename(folder / self._name)
            except BaseException:
                Path(name).unlink(missing_ok=True)
                raise


def _conf_of(environ: Mapping[str, str]) -> Path | None:
    named = environ.get("SLURM_CONF")
    if named:
        return Path(named)
    return next((path for path in map(Path, _PLACES) if path.exists()), None)


def _looks(path: Path) -> str:
    """Other than before once the file was changed; "" where there is none to see."""
    try:
        seen = path.stat()
    except OSError:
        return ""
    return f"{seen.st_mtime_ns} {seen.st_size} {seen.st_ino}"
