"""The daemons of one cluster: how each is started, and the ledger (daemons.json) of those that
were, by pid and start time."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from sbtrain.cluster.config import munge_socket
from sbtrain.cluster.errors import ClusterStartError
from sbtrain.cluster.folder import ClusterFolder, ClusterRecord
from sbtrain.cluster.processes import MARK, Identity, end, identify, is_running
from sbtrain.cluster.programs import Programs
from sbtrain_jobs.process import Child, start_process
from sbtrain_perf.codec import decode, encode
from sbtrain_staging.publish import publish_bytes

_PASSED_ON = ("HOME", "USER", "LOGNAME", "LANG", "TZ", "LD_LIBRARY_PATH")
_LAST_WORDS_BYTES = 20_000

# Daemons started by this very process, so that it reaps those that end.
_children: list[Child] = []


class PortTakenError(ClusterStartError):
    """Someone else got the port first; other ports may work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ledger:
    daemons: dict[str, Identity] = field(default_factory=dict)


@dataclass(slots=True)
class Daemons:
    """The ledger of one cluster's daemons, and the means to start and end them."""

    folder: ClusterFolder
    known: dict[str, Identity]

    @classmethod
    def of(cls, folder: ClusterFolder) -> Daemons:
        """An unreadable ledger counts as empty: the processes are found by their marks."""
        try:
            data = json.loads(folder.daemons_file.read_text(encoding="utf-8"))
            return cls(folder, dict(decode(_Ledger, data).daemons))
        except (OSError, ValueError):
            return cls(folder, {})

    def running(self) -> dict[str, Identity]:
        reap_children()
        return {name: one for name, one in self.known.items() if is_running(one)}

    def start(self, name: str, argv: list[str], environment: Mapping[str, str]) -> Identity:
        """Start in the foreground of a session of its own and write it down at once."""
        self.folder.log.mkdir(mode=0o700, exist_ok=True)
        with (self.folder.log / f"{name}.err").open("wb") as stream:
            process = start_process(
                argv, env=environment, cwd=self.folder.path, stdout=stream, stderr=stream
            )
        _children.append(process)
        identity = identify(process.pid)
        if identity is None:
            raise self.failure(name)
        self.known[name] = identity
        self._write()
        return identity

    def end(
        self, names: Iterable[str], *, grace_s: float, progress: Callable[[str], None]
    ) -> None:
        """End those of the named daemons that run, together."""
        running = self.running()
        left = {name: running[name] for name in names if name in running}
        end(
            left.values(),
            grace_s=grace_s,
            reap=reap_children,
            slow=lambda: progress(f"waiting for the end of {', '.join(left)}"),
        )

    def forget(self, names: Iterable[str]) -> None:
        for name in names:
            self.known.pop(name, None)
        self._write()

    def failure(self, name: str) -> ClusterStartError:
        """Why a daemon that was started ended, in its own last words."""
        said = self._last_words(name)
        taken = any("Address already in use" in line for line in said)
        kind = PortTakenError if taken else ClusterStartError
        return kind(
            f"{name} ended at once" + (f": {_telling(said)}" if said else ""),
            hint=f"its logs are {self.folder.log}/{name}.*",
        )

    def _last_words(self, name: str) -> list[str]:
        try:
            raw = (self.folder.log / f"{name}.err").read_bytes()[-_LAST_WORDS_BYTES:]
        except OSError:
            return []
        return [line for line in raw.decode(errors="replace").splitlines() if line.strip()]

    def _write(self) -> None:
        text = json.dumps(encode(_Ledger(daemons=self.known)), indent=2) + "\n"
        publish_bytes(self.folder.daemons_file, text.encode())


def _telling(lines: list[str]) -> str:
    """Slurm's daemons log harmless errors as they start but are fatal only once, and the
    reason is often in the error right before."""
    for word in ("fatal", "error", ""):
        places = [i for i, line in enumerate(lines) if word in line.lower()]
        if places:
            last = places[-1]
            cause = lines[last - 1] if last and "error" in lines[last - 1].lower() else ""
            return "; ".join(line.strip() for line in (cause, lines[last]) if line)
    return ""


def reap_children() -> None:
    for one in list(_children):
        if one.poll() is not None:
            with suppress(ValueError):
                _children.remove(one)


def daemon_environment(record: ClusterRecord, programs: Programs) -> dict[str, str]:
    """Nothing of a surrounding Slurm job or cluster gets in."""
    passed = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    return {
        **passed,
        "PATH": programs.search_path,
        "SLURM_CONF": record.conf,
        MARK: record.cluster_id,
    }


def munged_argv(folder: ClusterFolder, record: ClusterRecord, programs: Programs) -> list[str]:
    # --force: it otherwise wants root's permissions on every folder above the socket.
    return [
        programs.paths["munged"],
        "--foreground",
        "--force",
        f"--key-file={folder.etc / 'munge.key'}",
        f"--socket={munge_socket(record.root)}",
        f"--pid-file={folder.run / 'munged.pid'}",
        f"--seed-file={folder.run / 'munged.seed'}",
        "--num-threads=4",
    ]


def slurmctld_argv(record: ClusterRecord, programs: Programs) -> list[str]:
    return [programs.paths["slurmctld"], "-D", "-f", record.conf]


def slurmd_argv(record: ClusterRecord, programs: Programs, node: str) -> list[str]:
    return [programs.paths["slurmd"], "-D", "-N", node, "-f", record.conf]


def slurmd_name(node: str) -> str:
    return f"slurmd.{node}"
