"""pyslurm is asked where it can answer; whatever becomes of it, the commands answer. What a
real one says is held against the commands in tests/cluster/test_slurm_client.py."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest

from sbtrain.errors import SlurmMissingError
from sbtrain.slurm import pyslurm_client
from sbtrain.slurm.command_client import CommandsClient
from sbtrain.slurm.pyslurm_client import PyslurmClient, client_for
from sbtrain_jobs.process import run_command

PARTITION = {
    "PartitionName": "gpu",
    "Nodes": "g[1-2]",
    "TotalNodes": "2",
    "TotalCPUs": "8",
    "Default": "YES",
    "State": "UP",
    "PriorityTier": "1",
    "PreemptMode": "OFF",
    "GraceTime": "0",
    "MaxTime": "UNLIMITED",
    "DefaultTime": "10:00",
    "MaxNodes": "UNLIMITED",
    "MinNodes": "0",
    "AllowGroups": "ALL",
    "AllowAccounts": "ALL",
    "DenyAccounts": "",
    "AllowQos": "ALL",
    "DenyQos": "",
    "RootOnly": "NO",
    "ReqResv": "NO",
    "QoS": "N/A",
    "MaxCPUsPerNode": "UNLIMITED",
    "MaxMemPerNode": "UNLIMITED",
    "DefMemPerNode": "UNLIMITED",
    "DefMemPerCPU": "UNLIMITED",
}
BY_COMMANDS = " ".join(f"{key}={value}" for key, value in PARTITION.items()).replace(
    "=gpu", "=commands"
)


@pytest.fixture
def client(tmp_path: Path) -> PyslurmClient:
    scontrol = tmp_path / "scontrol"
    said = f"--version) echo slurm 26.05.5;; *) echo '{BY_COMMANDS}'"
    scontrol.write_text(f"#!/bin/sh\ncase $1 in {said};; esac\n")
    scontrol.chmod(0o700)
    return PyslurmClient(environ={"PATH": f"{tmp_path}:/usr/bin:/bin"}, query_timeout_s=30.0)


def answered_by(client: PyslurmClient) -> str:
    (partition,) = client.partitions()
    assert (partition.node_count, partition.default_time_s) == (2, 600)
    return partition.name


def child(client: PyslurmClient, lines: str) -> PyslurmClient:
    client.child = ("/bin/sh", "-c", lines)
    return client


def test_what_pyslurm_says_is_read_as_the_commands_words(client: PyslurmClient) -> None:
    told = json.dumps([PARTITION])
    child(client, f"""read -r asked; case $asked in *partitions*26*5*) echo '{told}';; esac""")
    assert answered_by(client) == "gpu"
    assert client.given_up == ""


@pytest.mark.parametrize(
    "lines",
    [
        "kill -SEGV $$",
        "exit 1",
        "echo 'slurm_load_partitions error: Unexpected message received' >&2; exit 1",
        "echo not JSON",
        "echo '{}'",
        "echo 7",
        "echo '[7]'",
        """echo '[{"PartitionName": "gpu"}]'""",
    ],
)
def test_the_commands_answer_whatever_becomes_of_it(client: PyslurmClient, lines: str) -> None:
    child(client, f"cat > /dev/null; {lines}")
    assert answered_by(client) == "commands"


def test_a_key_that_a_reader_looks_for_and_pyslurm_never_says_is_the_commands(
    client: PyslurmClient,
) -> None:
    """Not one that reads as empty: the readers grow with what scontrol shows."""
    told = json.dumps([{key: said for key, said in PARTITION.items() if key != "ReqResv"}])
    assert answered_by(child(client, f"cat > /dev/null; echo '{told}'")) == "commands"
    assert "no 'ReqResv'" in client.given_up


def test_what_has_failed_once_is_not_tried_again(client: PyslurmClient, tmp_path: Path) -> None:
    child(client, f"cat > /dev/null; echo x >> {tmp_path}/asked; exit 1")
    assert answered_by(client) == answered_by(client) == "commands"
    assert (tmp_path / "asked").read_text() == "x\n"
    assert "exited with 1" in client.given_up


def test_one_that_hangs_is_ended(
    client: PyslurmClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pyslurm_client, "_WITHIN_S", 0.5)
    begin = time.monotonic()
    assert answered_by(child(client, "sleep 60")) == "commands"
    assert time.monotonic() - begin < 30


def test_where_slurm_is_missing_the_commands_say_so(client: PyslurmClient) -> None:
    away = PyslurmClient(environ={"SLURM_CONF": "/nowhere/slurm.conf", "PATH": "/usr/bin:/bin"})
    with pytest.raises(SlurmMissingError, match=r"/nowhere/slurm\.conf"):
        away.partitions()


@pytest.mark.parametrize("release", [[24, 11], [26, 5]])
def test_the_real_child_asks_only_the_release_that_it_was_made_for(
    release: list[int], tmp_path: Path
) -> None:
    """Its version is looked up before it is loaded; this one could not be."""
    made = tmp_path / "pyslurm"
    made.mkdir()
    (made / "version.py").write_text('# 25.11\n__version__ = "26.5.0+pyslurm25.11.2"\n')
    (made / "__init__.py").write_text("raise SystemExit('loaded')\n")
    code = f"import sys, runpy; sys.path.insert(0, {str(tmp_path)!r}); "
    code += f"runpy.run_path({PyslurmClient.child[-1]!r}, run_name='__main__')"
    said = run_command(
        [sys.executable, "-c", code],
        timeout_s=60,
        stdin=json.dumps({"ask": "nodes", "release": release}),
        check="keep",
    )
    assert said.returncode == 1
    expected = "loaded" if release == [26, 5] else "is not made for this Slurm"
    assert expected in said.stderr


def test_it_is_chosen_where_it_is_named_and_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kind(**environ: str) -> type:
        return type(client_for(environ, own={}, query_timeout_s=1.0))

    monkeypatch.setattr(sys, "path", [])
    monkeypatch.delitem(sys.modules, "pyslurm", raising=False)
    assert kind(SBTRAIN_SLURM="pyslurm") is CommandsClient
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    (tmp_path / "pyslurm.py").write_text("raise RuntimeError('loaded in the wrong process')\n")
    assert kind(SBTRAIN_SLURM="pyslurm") is PyslurmClient
    assert kind() is kind(SBTRAIN_SLURM="commands") is CommandsClient
