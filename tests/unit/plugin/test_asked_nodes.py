"""Nodes that are not alike: what a call asks of a node is held against each, and a plan is made
of those that have it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from fake_slurm import FakeSlurm
from fake_slurm_cluster import fake_node, fake_partition
from sbtrain.options.argv import split_command_line
from sbtrain.options.flag_table import FLAGS
from sbtrain.options.script import Script
from sbtrain.slurm.gres import read_gres
from sbtrain.submission.planning import Planned, decide
from sbtrain.submission.read_call import Surroundings, read_call

TRAINS = b"import torch\nfrom sbtrain import join\n"
TWO_TYPES = "gpu:a100:2(S:0),gpu:k80:2,shard:8"


def planned(*words: str, slurm: FakeSlurm, tmp_path: Path) -> Planned:
    conf = tmp_path / "slurm.conf"
    conf.write_text("ClusterName=played\n")
    environ = {"SBTRAIN_HOME": f"{tmp_path}/home", "SLURM_CONF": str(conf)}
    around = Surroundings(cwd=tmp_path, environ=environ, stdin=lambda: b"")
    line = split_command_line(["--train-steps=20", *words, "train.py"], FLAGS)
    script = Script(name="train.py", folder=tmp_path, content=TRAINS, shown="train.py")
    return decide(read_call(line, around, script), around, slurm)


def uneven() -> FakeSlurm:
    """c1 is small; c2 is large; g1 has GPUs of two types, g2 of a third."""
    nodes = [
        dataclasses.replace(fake_node("c1"), memory_mib=2_000, cpus=2, cores=2),
        dataclasses.replace(fake_node("c2"), memory_mib=64_000, cpus=32, cores=32),
        dataclasses.replace(fake_node("g1"), gres=read_gres(TWO_TYPES)),
        dataclasses.replace(fake_node("g2"), gres=read_gres("gpu:h100:4")),
    ]
    main = fake_partition("main", "c[1-2],g[1-2]", default=True)
    return FakeSlurm(nodes=nodes, partitions=[main])


@pytest.mark.parametrize(
    ("words", "gpu", "gpus", "nodes"),
    [
        (("--mem=40G",), None, 0, 1),
        (("-c", "30"), None, 0, 1),
        (("--gres=gpu:k80:2",), "K80", 2, 1),
        (("--gpus-per-node=k80:1",), "K80", 2, 1),
        (("--gres=gpu:a100:1",), "A100", 2, 1),
        (("-w", "g2"), "H100", 4, 1),
        (("-w", "g1"), "A100", 2, 1),
        (("-w", "c[1-2]", "-N2"), None, 0, 2),
    ],
)
def test_what_one_kind_of_node_has_is_not_refused_for_the_others(
    words: tuple[str, ...], gpu: str | None, gpus: int, nodes: int, tmp_path: Path
) -> None:
    found = planned(*words, slurm=uneven(), tmp_path=tmp_path)
    plan = found.decision.chosen
    assert plan is not None
    (partition,) = (
        one for one in found.shape.partitions if one.name == found.decision.rows[0].partition
    )
    assert partition.gpus_per_node == gpus
    assert (partition.gpu.name if partition.gpu else None) == gpu
    assert plan.nodes == nodes


@pytest.mark.parametrize(
    "said",
    [
        "price_per_node_hour = 2\n",
        "nodes = 4\nmemory_gib_per_node = 1.953\ncores_per_node = 2\n",
    ],
)
def test_a_site_file_that_repeats_what_slurm_says_of_all_nodes_refuses_nothing(
    said: str, tmp_path: Path
) -> None:
    site = tmp_path / "site.toml"
    site.write_text(f"[partitions.main]\n{said}")
    words = (f"--train-site={site}", "--mem=40G", "-c", "30")
    found = planned(*words, slurm=uneven(), tmp_path=tmp_path)
    assert found.decision.chosen is not None
    assert found.warnings == ()


def test_on_nodes_with_several_types_the_one_that_is_planned_with_is_asked_for(
    tmp_path: Path,
) -> None:
    both = dataclasses.replace(fake_node("g1"), gres=read_gres(TWO_TYPES))
    main = fake_partition("main", "g1", default=True)
    slurm = FakeSlurm(nodes=[both], partitions=[main])
    found = planned(slurm=slurm, tmp_path=tmp_path)
    assert [one.gres for one in found.shape.partitions] == ["gpu:a100:2"]


def test_many_partitions_of_which_nobody_can_say_when_they_come_free_are_not_all_named(
    tmp_path: Path,
) -> None:
    partitions = [fake_partition(f"p{at}", "c1") for at in range(20)]
    slurm = FakeSlurm(nodes=[fake_node("c1")], partitions=partitions)
    warnings = planned("-C", "nosuch", slurm=slurm, tmp_path=tmp_path).warnings
    assert any("nodes of p0, p1, p10 and 17 more come free" in one for one in warnings)
