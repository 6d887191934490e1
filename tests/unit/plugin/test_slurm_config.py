"""slurm.conf and `scontrol show config` are read alike."""

from __future__ import annotations

from pathlib import Path

import pytest

from sbtrain.slurm.cluster_config import ClusterConfig, configuration_text, read_config

FILE = """\
# ClusterName=not_this
clustername=big   # the name
AuthInfo=socket=/run/munge.sock,cred_expire=30
PreemptType = preempt/partition_prio
KillWait=45
TmpFS=\\
/local/%n
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageEnforce=associations,limits
TaskPlugin=affinity,cgroup
SelectTypeParameters=CR_Core_Memory
NodeName=c[1-4] CPUs=4
"""
SHOWN = """\
Configuration data as of 2026-12-01T04:52:04
ClusterName             = big
AuthInfo                = socket=/run/munge.sock,cred_expire=30
PreemptType             = preempt/partition_prio
KillWait                = 45 sec
TmpFS                   = /local/%n
AccountingStorageType   = accounting_storage/slurmdbd
AccountingStorageEnforce = associations,limits
TaskPlugin              = task/cgroup,task/affinity
SelectTypeParameters    = CR_CORE_MEMORY
DefMemPerNode           = UNLIMITED
"""
SAID = ClusterConfig(
    name="big",
    requeue_s=30,
    kill_wait_s=45.0,
    preempt_type="partition_prio",
    tmp_fs="/local/%n",
    limits=True,
    binds_cpus=True,
    all_memory=True,
)


def test_the_file_and_what_slurm_shows_say_the_same(tmp_path: Path) -> None:
    (tmp_path / "slurm.conf").write_text(FILE)
    text = configuration_text(tmp_path / "slurm.conf")
    assert text is not None
    assert read_config(text) == SAID == read_config(SHOWN)


def test_what_is_not_said_is_slurms_default() -> None:
    said = "AuthInfo = (null)\nPreemptType = preempt/none\n"
    assert read_config(said) == ClusterConfig() == read_config("")
    assert (ClusterConfig().requeue_s, ClusterConfig().tmp_fs) == (120, "/tmp")
    assert ClusterConfig().kill_wait_s == 30.0


@pytest.mark.parametrize(
    ("said", "all_memory"),
    [
        ("SelectTypeParameters=CR_Core", False),
        ("SelectTypeParameters=CR_CPU_Memory", True),
        ("SelectTypeParameters=CR_Memory\nDefMemPerCPU=2000", False),
        ("SelectTypeParameters=CR_Memory\nDefMemPerCPU=0", True),
    ],
)
def test_who_asks_for_no_memory_may_get_all_of_it(said: str, *, all_memory: bool) -> None:
    assert read_config(said).all_memory is all_memory


def test_includes_are_taken_in_and_a_missing_one_is_not_guessed(tmp_path: Path) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text("ClusterName=one\nInclude more.conf\n")
    assert configuration_text(conf) is None
    (tmp_path / "more.conf").write_text("ClusterName=two\ninclude slurm.conf\n")
    assert configuration_text(conf) is None  # each includes the other
    (tmp_path / "more.conf").write_text("ClusterName=two\n")
    text = configuration_text(conf)
    assert text is not None
    assert read_config(text).name == "two"


def test_keys_may_share_a_line_and_values_may_be_quoted() -> None:
    said = 'ClusterName="big" SlurmctldHost=h TmpFS="/local"\n'
    assert (read_config(said).name, read_config(said).tmp_fs) == ("big", "/local")


def test_slurm_makes_the_letters_of_the_clusters_name_small() -> None:
    assert read_config("ClusterName=BigCluster\n").name == "bigcluster"
