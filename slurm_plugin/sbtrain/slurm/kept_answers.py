"""What Slurm was asked lately, kept for this user, so that a submission costs slurmctld one
question about the queue and the job itself.

Partitions are asked about once a day, and anew when slurm.conf has changed, with what of it
counts; nodes once an
hour, and anew when the queue contradicts what is kept of them; the queue each time, but for
calls within seconds of each other. Nothing is kept where nothing can be written.
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

from sbtrain.errors import HomeError
from sbtrain.home import home, made_home
from sbtrain.slurm.client import PartitionInfo, QueuedJob, SlurmClient
from sbtrain.slurm.cluster_config import ClusterConfig, configuration_text, read_config
from sbtrain.slurm.node_kinds import NO_NODES, Nodes, nodes_of
from sbtrain.slurm.user_limits import NO_LIMITS, UserLimits
from sbtrain_perf.codec import decode, encode

PARTITIONS_S = 86_400.0
NODES_S = 3_600.0
NODES_AGAIN_S = 300.0  # however often the queue contradicts them
QUEUE_S = 5.0
_FORM = 3  # of what is kept
_PLACES = ("/etc/slurm/slurm.conf", "/etc/slurm-llnl/slurm.conf", "/run/slurm/conf/slurm.conf")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    """conf: what slurm.conf looked like. Times are seconds since the epoch."""

    conf: str
    form: int = _FORM
    config: ClusterConfig | None = None
    limits: UserLimits | None = None
    partitions: tuple[PartitionInfo, ...] = ()
    partitions_at_s: float = 0.0
    nodes: Nodes = NO_NODES
    nodes_at_s: float = 0.0
    queue: tuple[QueuedJob, ...] = ()
    queue_at_s: float = 0.0


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
        self._name = f"slurm-{hashlib.sha256(str(conf).encode()).hexdigest()[:12]}.json"
        self._kept = self._read(_looks(conf))

    def config(self) -> ClusterConfig:
        """Asked about with the partitions; slurm.conf itself is read where it can be."""
        self.partitions()
        if self._kept.config is None:
            text = configuration_text(self._conf) if self._conf else None
            said = self._client.config() if text is None else read_config(text)
            self._keep(dataclasses.replace(self._kept, config=said))
            return said
        return self._kept.config

    def limits(self) -> UserLimits:
        """Asked about with the partitions, where the accounting limits jobs at all."""
        if not self.config().limits:
            return NO_LIMITS
        if self._kept.limits is None:
            said = self._client.limits()
            self._keep(dataclasses.replace(self._kept, limits=said))
            return said
        return self._kept.limits

    def partitions(self) -> tuple[PartitionInfo, ...]:
        if self._aged(self._kept.partitions_at_s, PARTITIONS_S):
            said, at_s = self._client.partitions(), self._now()
            self._keep(
                dataclasses.replace(
                    self._kept,
                    partitions=said,
                    partitions_at_s=at_s,
                    config=None,
                    limits=None,
                )
            )
        return self._kept.partitions

    def nodes(self, *, most_s: float = NODES_S) -> Nodes:
        """What was said at most so long ago."""
        if self._aged(self._kept.nodes_at_s, most_s):
            said, at_s = nodes_of(self._client.nodes()), self._now()
            self._keep(dataclasses.replace(self._kept, nodes=said, nodes_at_s=at_s))
        return self._kept.nodes

    def queue(self) -> tuple[QueuedJob, ...]:
        if self._aged(self._kept.queue_at_s, QUEUE_S):
            said, at_s = self._client.queue(), self._now()
            self._keep(dataclasses.replace(self._kept, queue=said, queue_at_s=at_s))
        return self._kept.queue

    def _aged(self, at_s: float, most_s: float) -> bool:
        return not 0.0 <= self._now() - at_s < most_s

    def _read(self, conf: str) -> _Kept:
        with contextlib.suppress(OSError, ValueError, RecursionError, HomeError):
            text = (home(self._environ) / self._name).read_text(encoding="utf-8")
            kept = decode(_Kept, json.loads(text))
            if kept.conf == conf and kept.form == _FORM:
                return kept
        return _Kept(conf=conf)

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


def _looks(conf: Path | None) -> str:
    """Other than before once the file was changed; the same where there is none to see."""
    try:
        seen = os.stat(conf) if conf else None  # noqa: PTH116
    except OSError:
        seen = None
    return f"{seen.st_mtime_ns} {seen.st_size}" if seen else ""
