"""What Slurm says of a cluster, in the form of a site file."""

from __future__ import annotations

import dataclasses
import tomllib
from typing import Any

from fake_slurm_cluster import fake_node, fake_partition
from sbtrain.sites.discovery import as_toml, discovered
from sbtrain.slurm.client import NodeInfo, PartitionInfo
from sbtrain.slurm.cluster_config import ClusterConfig
from sbtrain.slurm.gres import read_gres
from sbtrain.slurm.node_kinds import nodes_of


def node(name: str, gres: str = "", *, features: str = "", **changes: Any) -> NodeInfo:
    return dataclasses.replace(
        fake_node(name),
        gres=read_gres(gres),
        features=tuple(word for word in features.split(",") if word),
        **changes,
    )


def said(
    *nodes: NodeInfo,
    partitions: list[PartitionInfo] | None = None,
    config: ClusterConfig | None = None,
) -> dict[str, Any]:
    names = ",".join(one.name for one in nodes)
    return discovered(
        partitions or [fake_partition("main", names, default=True)],
        nodes_of(nodes).kinds,
        config or ClusterConfig(name="big", preempt_type="partition_prio"),
    )


def main_of(*nodes: NodeInfo) -> dict[str, Any]:
    return dict(said(*nodes)["partitions"]["main"])


def test_nodes_with_one_type_of_gpu() -> None:
    found = said(*(node(f"n{at}", "gpu:nvidia_h100_80gb_hbm3:4(S:0-1)") for at in range(3)))
    main = found["partitions"]["main"]
    assert (main["nodes"], main["gpu"], main["gpus_per_node"]) == (3, "H100", 4)
    assert found["gpus"] == {"H100": {}}


def test_three_kinds_of_node_in_one_partition() -> None:
    main = main_of(node("a", "gpu:a100:2"), node("b", "gpu:v100:4"), node("c"))
    assert main["nodes"] == 3
    assert main["gpu_types"] == {
        "A100": {"nodes": 1, "gpus_per_node": 2, "gres": "a100"},
        "V100": {"nodes": 1, "gpus_per_node": 4, "gres": "v100"},
    }


def test_of_different_numbers_of_gpus_the_one_that_leaves_most() -> None:
    few, many = node("a", "gpu:t4:1"), [node(f"n{at}", "gpu:t4:8") for at in range(4)]
    main = main_of(few, *many)
    assert main["gpu_types"] == {"T4": {"nodes": 4, "gpus_per_node": 8}}
    main = main_of(*(node(f"n{at}", f"gpu:t4:{count}") for at, count in enumerate((4, 4, 5))))
    assert (main["gpu"], main["gpus_per_node"]) == ("T4", 4)


def test_a_type_that_nobody_knows_is_not_made_up() -> None:
    found = said(node("a", "gpu:2"))
    assert found["partitions"]["main"]["gpu"] == "gpu"
    assert found["gpus"] == {"gpu": {}}
    found = said(node("a", "gpu:wonder:2"))
    assert found["partitions"]["main"]["gpu"] == "wonder"


def test_cores_and_memory_are_what_each_node_has() -> None:
    main = main_of(
        node("a", cpus=64, cores=32, memory_mib=4096), node("b", cpus=16, memory_mib=2048)
    )
    assert (main["cores_per_node"], main["memory_gib_per_node"]) == (16, 2.0)
    assert "memory_gib_per_node" not in main_of(node("a", memory_mib=1))


def test_limits_are_slurms_and_none_stays_none() -> None:
    base = fake_partition("main", "a,b", default=True)
    limits = {"max_time_s": 7200, "default_time_s": None, "max_nodes": 1, "grace_s": 9}
    one = dataclasses.replace(base, **limits)  # type: ignore[arg-type]
    main = said(node("a"), node("b"), partitions=[one])["partitions"]["main"]
    assert (main["max_time_h"], main["max_nodes_per_job"], main["grace_s"]) == (2.0, 1, 9)
    assert "default_time_h" not in main
    free = dataclasses.replace(one, max_time_s=None, max_nodes=None)
    main = said(node("a"), node("b"), partitions=[free])["partitions"]["main"]
    assert not {"max_time_h", "max_nodes_per_job"} & set(main)


def test_who_pushes_whom_is_told_by_the_tiers_unless_qos_decides() -> None:
    partitions = [
        fake_partition("low", "a", preempt_mode="REQUEUE"),
        fake_partition("high", "a", tier=10, default=True),
        fake_partition("apart", "b", preempt_mode="REQUEUE"),
    ]
    nodes = (node("a"), node("b"))
    found = said(*nodes, partitions=partitions)["partitions"]
    assert list(found) == ["high", "low", "apart"]
    assert {name for name, one in found.items() if one.get("preemptible")} == {"low"}
    assert {name for name, one in found.items() if one.get("preempts_others")} == {"high"}
    by_qos = ClusterConfig(preempt_type="qos")
    found = said(*nodes, partitions=partitions, config=by_qos)["partitions"]
    assert all(one["preemptible"] for one in found.values())
    assert not any(one.get("preempts_others") for one in found.values())
    found = said(*nodes, partitions=partitions, config=ClusterConfig())["partitions"]
    assert not any({"preemptible", "preempts_others"} & set(one) for one in found.values())


def test_partitions_without_nodes_are_left_out() -> None:
    partitions = [fake_partition("empty", ""), fake_partition("main", "a", default=True)]
    assert list(said(node("a"), partitions=partitions)["partitions"]) == ["main"]


def test_scratch_lies_below_tmpfs() -> None:
    for tmp_fs, scratch in (
        ("/tmp", "/tmp/sbtrain-%u"),
        ("/local/%h/", "/local/%n/sbtrain-%u"),
        ("/odd/%x", None),
    ):
        config = ClusterConfig(name="big", tmp_fs=tmp_fs)
        main = said(node("a"), config=config)["partitions"]["main"]
        assert main.get("scratch") == scratch
    assert main_of(node("a", tmp_disk_mib=2048))["scratch_gib"] == 2.0


def test_the_text_is_the_data_again() -> None:
    found = said(node("a", "gpu:nvidia_geforce_rtx_2080_ti:2"), node("b"))
    assert "RTX 2080 Ti" in found["gpus"]
    assert tomllib.loads(as_toml(found)) == found


def test_untyped_gpus_of_several_types_cannot_be_told_apart() -> None:
    found = said(node("a", "gpu:2", features="a100"), node("b", "gpu:2", features="v100"))
    assert found["partitions"]["main"]["gpu"] == "gpu"
    assert found["gpus"] == {"gpu": {}}


def test_two_words_for_one_type_are_asked_for_each_by_its_own() -> None:
    main = main_of(
        node("a", "gpu:a100:4"), node("b", "gpu:nvidia_a100:4"), node("c", "gpu:t4:1")
    )
    assert set(main["gpu_types"]) == {"a100", "nvidia_a100", "T4"}
    assert all(of["nodes"] == 1 for of in main["gpu_types"].values())


def test_a_part_of_a_gpu_is_no_gpu() -> None:
    assert not {"gpu", "gpu_types"} & set(main_of(node("a", "gpu:a100_3g.20gb:2")))
    assert not {"gpu", "gpu_types"} & set(main_of(node("a", "gpu:1g.5gb:7")))


def test_a_partition_that_gives_no_job_a_whole_node() -> None:
    nodes = [node(name, cpus=8, cores=8) for name in ("a", "b")]
    base = fake_partition("main", "a,b", default=True)
    for most, cores, whole in ((2, 2, False), (8, 8, True), (None, 8, True)):
        one = dataclasses.replace(base, max_cpus_per_node=most)
        main = said(*nodes, partitions=[one])["partitions"]["main"]
        assert (main["cores_per_node"], main.get("whole_nodes", True)) == (cores, whole)
