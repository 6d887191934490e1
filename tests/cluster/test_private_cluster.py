"""The private cluster against the real daemons: its shape, healing, crashing, ending."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from clusters import assert_every_node_works, daemons_of, kill, kin_of, slurm, until
from sbtrain.cluster import PrivateCluster, down, ports, status, up
from sbtrain.cluster.errors import ClusterStartError, SlurmNotInstalledError
from sbtrain.cluster.processes import is_running
from sbtrain_jobs.process import CommandResult, run_command

pytestmark = pytest.mark.slurm


@pytest.fixture
def stranger() -> Iterator[int]:
    """The pid of a process that has nothing to do with any cluster."""
    process = subprocess.Popen(["sleep", "300"])
    yield process.pid
    assert process.poll() is None, "a process that was not the cluster's was ended"
    process.kill()
    process.wait()


# ---- shape


def test_partitions(slurm_cluster: PrivateCluster) -> None:
    said = slurm(slurm_cluster, "scontrol", "-o", "show", "partition")
    found = {}
    for line in said.splitlines():
        pairs = dict(item.split("=", 1) for item in line.split() if "=" in item)
        names = ("Nodes", "Default", "PriorityTier", "PreemptMode", "GraceTime", "State")
        found[pairs["PartitionName"]] = tuple(pairs[name] for name in names)
    assert found == {
        "standard": ("c[1-4]", "YES", "1", "OFF", "0", "UP"),
        "spot": ("c[1-4],g[1-4]", "NO", "1", "REQUEUE", "15", "UP"),
        "urgent": ("c[1-4],g[1-4]", "NO", "10", "OFF", "0", "UP"),
    }


def test_a_job_gets_the_gpus_of_a_node(slurm_cluster: PrivateCluster) -> None:
    wants = ("-p", "spot", "-N2", "--gres=gpu:k80:2")
    said = slurm(slurm_cluster, "srun", *wants, "printenv", "CUDA_VISIBLE_DEVICES")
    assert said.split() == ["0,1", "0,1"]


def test_each_node_has_its_own_scratch(slurm_cluster: PrivateCluster) -> None:
    said = slurm(slurm_cluster, "scontrol", "show", "config")
    (line,) = (line for line in said.splitlines() if line.startswith("TmpFS"))
    assert line.split("=")[1].strip() == f"{slurm_cluster.record.root}/tmp/%n"
    assert all(
        (slurm_cluster.folder / "tmp" / node.name).is_dir() for node in slurm_cluster.nodes
    )


def test_only_its_owner_can_read_it(slurm_cluster: PrivateCluster) -> None:
    assert stat.S_IMODE((slurm_cluster.folder / "etc/munge.key").stat().st_mode) == 0o600
    assert stat.S_IMODE(slurm_cluster.folder.stat().st_mode) == 0o700


def test_listens_on_the_loopback_address(slurm_cluster: PrivateCluster) -> None:
    if ports.address_of(slurm_cluster.record.host) != "127.0.0.1":
        pytest.skip(
            "the host's name does not stand for 127.0.0.1, so Slurm cannot be held to it"
        )
    taken = slurm_cluster.record.ports
    heard = ports.listening()
    for port in (taken.slurmctld, *taken.nodes.values()):
        assert heard[port] == {"127.0.0.1"}
    assert not slurm_cluster.listens_beyond_loopback


# ---- up


def test_up_twice_changes_nothing(slurm_cluster: PrivateCluster) -> None:
    before = daemons_of(slurm_cluster)
    again = up(slurm_cluster.folder)
    assert again.started == ()
    assert again.environment["SLURM_CONF"] == slurm_cluster.environment["SLURM_CONF"]
    assert daemons_of(slurm_cluster) == before
    assert status(slurm_cluster.folder).state == "up"


@pytest.mark.parametrize("name", ["slurmctld", "munged", "slurmd.g2"])
def test_heals_after_a_daemon_was_killed(private_slurm: PrivateCluster, name: str) -> None:
    before = daemons_of(private_slurm)
    kill(before[name])
    assert status(private_slurm.folder).state == "degraded"
    healed = up(private_slurm.folder)
    assert healed.started == (name,)
    after = daemons_of(private_slurm)
    assert {one: after[one] for one in before if one != name} == {
        one: before[one] for one in before if one != name
    }
    assert_every_node_works(healed)
    assert kin_of(healed.record, healed.folder) != []
    assert down(healed.folder)
    assert kin_of(healed.record, healed.folder) == []


def test_heals_after_everything_was_killed(private_slurm: PrivateCluster) -> None:
    for identity in daemons_of(private_slurm).values():
        kill(identity)
    healed = up(private_slurm.folder)
    assert len(healed.started) == 10
    assert_every_node_works(healed)


def test_heals_when_slurmctld_hangs(
    private_slurm: PrivateCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sbtrain.cluster.start._HEALING_S", 1.0)
    os.kill(daemons_of(private_slurm)["slurmctld"].pid, signal.SIGSTOP)
    healed = up(private_slurm.folder)
    assert len(healed.started) == 10
    assert_every_node_works(healed)


def test_never_ends_the_process_that_got_a_dead_daemons_pid(
    private_slurm: PrivateCluster, stranger: int
) -> None:
    folder = private_slurm.folder
    for identity in daemons_of(private_slurm).values():
        kill(identity)
    ledger = json.loads((folder / "daemons.json").read_text())
    for entry in ledger["daemons"].values():
        entry["pid"] = stranger
    (folder / "daemons.json").write_text(json.dumps(ledger))
    for written in (folder / "run").glob("*.pid"):
        written.write_text(f"{stranger}\n")
    assert status(folder).state == "down"
    assert_every_node_works(up(folder))
    down(folder)
    (folder / "daemons.json").write_text(json.dumps(ledger))
    down(folder)


def test_finds_its_daemons_without_the_ledger(private_slurm: PrivateCluster) -> None:
    before = daemons_of(private_slurm)
    (private_slurm.folder / "daemons.json").unlink()
    healed = up(private_slurm.folder)
    assert not any(is_running(one) for one in before.values())
    assert_every_node_works(healed)


def test_heals_after_up_itself_was_killed(private_slurm: PrivateCluster) -> None:
    folder = private_slurm.folder
    down(folder)
    script = (
        "import sys; from pathlib import Path; from sbtrain.cluster import up;"
        "up(Path(sys.argv[1]))"
    )
    for delay_s in (0.2, 0.25, 0.3, 0.35, 0.4):
        process = subprocess.Popen([sys.executable, "-c", script, str(folder)])
        time.sleep(delay_s)
        process.kill()
        process.wait()
    assert_every_node_works(up(folder))
    until(
        "nothing runs twice",  # slurmctld has a helper process of its own
        lambda: len(kin_of(private_slurm.record, folder)) == 11,
        seconds=10,
    )
    down(folder)
    assert kin_of(private_slurm.record, folder) == []


@pytest.mark.parametrize("index", [0, 5])  # slurmctld's, a slurmd's
def test_takes_other_ports_when_one_is_taken_meanwhile(
    private_slurm: PrivateCluster, monkeypatch: pytest.MonkeyPatch, index: int
) -> None:
    down(private_slurm.folder)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        calls = []

        @contextmanager
        def first_with_a_taken_one(
            count: int, *, source: random.Random
        ) -> Iterator[tuple[int, ...]]:
            with ports.free_ports(count, source=source) as found:
                calls.append(found)
                spoilt = [*found]
                spoilt[index] = taken.getsockname()[1]
                yield tuple(spoilt) if len(calls) == 1 else found

        monkeypatch.setattr("sbtrain.cluster.start.free_ports", first_with_a_taken_one)
        said: list[str] = []
        again = up(private_slurm.folder, progress=said.append)
    assert len(calls) == 2
    assert said.count("another program took a port: trying others") == 1
    assert_every_node_works(again)


def bind_soon(one: socket.socket, port: int, *, within_s: float = 60.0) -> None:
    """Take a port; one that a killed program held is free a moment later."""
    deadline = time.monotonic() + within_s
    while True:
        try:
            one.bind(("0.0.0.0", port))
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def test_heals_when_another_program_got_the_dead_slurmctlds_port(
    private_slurm: PrivateCluster,
) -> None:
    kill(daemons_of(private_slurm)["slurmctld"])
    port = private_slurm.record.ports.slurmctld
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bind_soon(taken, port)
        taken.listen()
        healed = up(private_slurm.folder)
    assert healed.record.ports.slurmctld != port
    assert healed.environment == private_slurm.environment
    assert_every_node_works(healed)


def test_a_start_that_fails_says_why_and_leaves_nothing_running(
    private_slurm: PrivateCluster,
) -> None:
    folder = private_slurm.folder
    down(folder)
    (folder / "etc" / "local.conf").write_text("Nonsense=1\n")
    with pytest.raises(ClusterStartError, match=r"slurmctld .*(Nonsense|slurm\.conf|parse)"):
        up(folder)
    assert kin_of(private_slurm.record, folder) == []
    (folder / "etc" / "local.conf").write_text("SlurmctldDebug=debug\n")
    assert_every_node_works(up(folder))


def test_works_in_a_folder_with_a_long_and_unusual_path(tmp_path: Path) -> None:
    folder = tmp_path / ("ein Ordner, der # viel zu lang ist; " * 4) / "ü"
    try:
        cluster = up(folder)
        link = Path(cluster.record.root)
        assert link.resolve() == folder.resolve()
        assert_every_node_works(cluster)
        assert up(folder).started == ()
        down(folder)
        assert not link.parent.exists()
        assert_every_node_works(up(folder))
    finally:
        down(folder)


def test_three_at_once(tmp_path: Path) -> None:
    folders = [Path(f"{tmp_path}/{i}") for i in range(3)]
    clusters: dict[Path, PrivateCluster] = {}
    threads = [
        threading.Thread(target=lambda place=place: clusters.update({place: up(place)}))
        for place in folders
    ]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for place in folders:
            assert_every_node_works(clusters[place])
        down(folders[0])
        assert_every_node_works(clusters[folders[1]])
        assert status(folders[2]).state == "up"
    finally:
        for place in folders:
            down(place)


@pytest.mark.slow
def test_accounting(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    try:
        said: list[str] = []
        try:
            cluster = up(folder, nodes_per_kind=1, accounting=True, progress=said.append)
        except SlurmNotInstalledError as error:
            pytest.skip(f"{error.message}: {error.hint}")
        assert "setting up the accounting database (once)" in said
        slurm(cluster, "srun", "-J", "remembered", "true")
        command = ("sacct", "-X", "-n", "-P", "-o", "JobName,State")

        def is_remembered() -> bool:
            return "remembered|COMPLETED" in slurm(cluster, *command)

        until("sacct knows the job", is_remembered, seconds=20)
        if cluster.record.host_address == "127.0.0.1":
            assert ports.listening()[cluster.record.ports.slurmdbd] == {"127.0.0.1"}
        down(folder)
        cluster = up(folder)
        assert "mariadbd" in cluster.started
        assert is_remembered()
    finally:
        down(folder)
    assert kin_of(cluster.record, folder) == []


# ---- the command


def sbtrainctl(*argv: str) -> CommandResult:
    command = [sys.executable, "-m", "sbtrain.commands.ctl", "cluster", *argv]
    return run_command(command, timeout_s=120, check="keep")


def test_the_command(tmp_path: Path) -> None:
    pytest.importorskip("sbtrain.commands.ctl")
    folder = ("--folder", str(tmp_path / "c"))
    try:
        assert sbtrainctl("status", *folder).returncode == 1
        assert sbtrainctl("env", *folder).returncode == 50
        assert sbtrainctl("up", "--nodes", "1", *folder).returncode == 0
        shown = sbtrainctl("status", "--json", *folder)
        assert shown.returncode == 0
        assert json.loads(shown.stdout)["state"] == "up"
        lines = sbtrainctl("env", *folder).stdout
        used = run_command(["sh", "-c", f"{lines}\nsinfo -h -N -o %N"], timeout_s=60).stdout
        assert set(used.split()) == {"c1", "g1"}
        refused = sbtrainctl("up", "--nodes", "2", *folder)
        assert refused.returncode == 50
        assert "cluster down" in refused.stderr
        assert sbtrainctl("down", "--wipe", *folder).returncode == 0
        assert not (tmp_path / "c").exists()
    finally:
        down(tmp_path / "c")
