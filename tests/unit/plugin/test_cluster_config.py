"""The configuration text of a private cluster, per Slurm version and host address."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clusters import RECORD
from sbtrain.cluster.config import communication, configuration, gres_conf
from sbtrain.cluster.folder import ClusterRecord


def settings(record: ClusterRecord) -> dict[str, str]:
    lines = configuration(record)["slurm.conf"].splitlines()
    plain = [
        line for line in lines if not line.startswith(("NodeName", "Partition", "Include"))
    ]
    pairs = [line.split("=", 1) for line in plain]
    assert len({key for key, _ in pairs}) == len(pairs), "a key is given twice"
    assert all(value for _, value in pairs), "an empty value breaks every client command"
    return {line[0]: line[1] for line in pairs}


def lines_of(record: ClusterRecord, kind: str) -> dict[str, dict[str, str]]:
    found = {}
    for line in configuration(record)["slurm.conf"].splitlines():
        if line.startswith(f"{kind}="):
            pairs = dict(item.split("=", 1) for item in line.split())
            found[pairs.pop(kind)] = pairs
    return found


@pytest.mark.parametrize(
    ("version", "text"),
    [
        ("22.05.8", "CgroupPlugin=cgroup/v1\n"),
        ("23.02.7", "CgroupPlugin=cgroup/v1\n"),
        ("23.11.4", "CgroupPlugin=disabled\n"),
        ("24.11.5", "CgroupPlugin=disabled\n"),
    ],
)
def test_only_newer_slurm_can_be_told_to_leave_cgroups_alone(version: str, text: str) -> None:
    assert configuration(replace(RECORD, slurm_version=version))["cgroup.conf"] == text


def test_the_rest_is_the_same_for_both_versions() -> None:
    old = configuration(RECORD)
    new = configuration(replace(RECORD, slurm_version="24.11.5"))
    assert {name for name in old if old[name] != new[name]} == {"cgroup.conf"}


@pytest.mark.parametrize("version", ["22.05.8", "24.11.5"])
def test_slurm_conf_has_no_key_that_either_version_refuses(version: str) -> None:
    given = settings(replace(RECORD, slurm_version=version))
    assert "PreemptParameters" not in given  # unknown to 22.05
    assert given["SlurmctldParameters"] == "preempt_send_user_signal"


def test_everything_lies_below_the_root_and_belongs_to_the_user() -> None:
    given = settings(RECORD)
    paths = [value for value in given.values() if value.startswith("/")]
    assert len(paths) == 7
    assert all(path.startswith("/home/ada/c/") for path in paths)
    assert given["AuthInfo"].startswith("socket=/home/ada/c/run/munge.sock,cred_expire=")
    assert given["SlurmUser"] == given["SlurmdUser"] == "ada"
    assert given["TmpFS"] == "/home/ada/c/tmp/%n"


def test_nodes() -> None:
    nodes = lines_of(RECORD, "NodeName")
    assert list(nodes) == ["c1", "c2", "g1", "g2"]
    assert {name: node.get("Gres") for name, node in nodes.items()} == {
        "c1": None,
        "c2": None,
        "g1": "gpu:k80:2",
        "g2": "gpu:k80:2",
    }
    assert [node["Port"] for node in nodes.values()] == ["11002", "11003", "11004", "11005"]
    assert {node["NodeAddr"] for node in nodes.values()} == {"127.0.0.1"}


def test_partitions() -> None:
    partitions = lines_of(RECORD, "PartitionName")
    assert partitions["standard"]["Nodes"] == "c1,c2"
    assert partitions["standard"]["Default"] == "YES"
    assert partitions["spot"]["Nodes"] == partitions["urgent"]["Nodes"] == "c1,c2,g1,g2"
    assert partitions["spot"]["PreemptMode"] == "REQUEUE"
    assert partitions["spot"]["GraceTime"] == "15"
    assert int(partitions["urgent"]["PriorityTier"]) > int(partitions["spot"]["PriorityTier"])


def test_each_gpu_has_a_device_file() -> None:
    assert gres_conf(("c1", "g1")) == (
        "NodeName=g1 Name=gpu Type=k80 File=/dev/null\n"
        "NodeName=g1 Name=gpu Type=k80 File=/dev/zero\n"
    )


def test_accounting_brings_its_own_lines() -> None:
    given = settings(replace(RECORD, accounting=True))
    assert given["AccountingStoragePort"] == "11001"
    assert given["AccountingStoragePass"] == "socket=/home/ada/c/run/munge.sock"
    assert settings(RECORD)["AccountingStorageType"] == "accounting_storage/none"


@pytest.mark.parametrize(
    ("address", "parameters", "controller"),
    [
        ("127.0.0.1", "NoInAddrAny,NoCtldInAddrAny", "127.0.0.1"),
        ("127.0.1.1", "NoCtldInAddrAny", "127.0.1.1"),
        ("192.0.2.7", "", "127.0.0.1"),
        ("", "", "127.0.0.1"),
    ],
)
def test_listens_on_loopback_as_far_as_the_hosts_name_allows(
    address: str, parameters: str, controller: str
) -> None:
    assert communication(address) == (parameters, controller)
    given = settings(replace(RECORD, host_address=address))
    assert given.get("CommunicationParameters", "") == parameters
    assert given["SlurmctldHost"] == f"laptop({controller})"
