"""What the installed sbatch itself reads from words and scripts, without any slurmctld.

sbatch -v prints the options it has understood before it looks for a controller; it is ended
there.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from sbtrain_jobs.process import end_session, start_process

needs_sbatch = pytest.mark.skipif(
    shutil.which("sbatch") is None, reason="sbatch is not installed"
)

CONF_WITHOUT_SLURMCTLD = """\
ClusterName=nowhere
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort=1
NodeName=a CPUs=1
PartitionName=p Nodes=a
AuthType=auth/none
CredType=cred/none
MessageTimeout=2
"""
_REFUSALS = (
    "Invalid directive found",
    "Unmatched",
    "Unexpected",
    "requires an argument",
    "unrecognized option",
    "invalid option",
    "is ambiguous",
    "doesn't allow an argument",
    "not permitted with --wrap",
    "mutually exclusive",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Understood:
    """options as sbatch prints them; missing: the script that it could not open."""

    options: dict[str, str]
    missing: str | None
    refused: bool


def sbatch_reads(words: list[str], *, cwd: Path, stdin: bytes = b"") -> Understood:
    conf = cwd / ".slurm.conf"
    conf.write_text(CONF_WITHOUT_SLURMCTLD)
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("SBATCH_", "SLURM_"))}
    process = start_process(
        ["sbatch", "-v", *words],
        cwd=cwd,
        env={**environ, "SLURM_CONF": str(conf), "LC_ALL": "C.UTF-8"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    lines = []
    with process.stdin, process.stdout:
        process.stdin.write(stdin)
        process.stdin.close()
        for raw in process.stdout:
            lines.append(raw.decode(errors="surrogateescape"))
            if "end of defined options" in lines[-1]:
                break
        end_session(process)
    process.wait()
    text = "".join(lines)
    missing = re.search(r"Unable to open file (.*)", text)
    return Understood(
        options=dict(re.findall(r"^sbatch: ([a-z-]+) +: (.*)$", text, re.MULTILINE)),
        missing=missing[1] if missing else None,
        refused=any(words in text for words in _REFUSALS),
    )
