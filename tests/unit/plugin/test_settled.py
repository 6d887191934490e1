"""What site files state, held against what Slurm says."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

from fake_slurm import FakeSlurm
from sbtrain.sites.discovery import discovered
from sbtrain.sites.settled import settled
from sbtrain.slurm.cluster_config import ClusterConfig
from sbtrain.slurm.node_kinds import nodes_of
from stale_sites import RIGHT, STALE_SITES, StaleSite


def said() -> dict[str, Any]:
    slurm, config = FakeSlurm(), ClusterConfig(name="played", preempt_type="partition_prio")
    return discovered(slurm.partitions(), nodes_of(slurm.nodes()).kinds, config)


def test_a_file_that_is_right_is_not_warned_of() -> None:
    stated = tomllib.loads(RIGHT)
    found = settled(said(), stated)
    assert found.problems == ()
    assert found.data["name"] == "was"
    assert found.data["partitions"]["standard"]["memory_gib_per_node"] == 15
    assert "gpu_types" not in found.data["partitions"]["spot"]


def test_what_no_file_says_is_slurms() -> None:
    found = settled(said(), {"partitions": {"spot": {"price_per_node_hour": 2}}})
    assert found.problems == ()
    spot = found.data["partitions"]["spot"]
    assert (spot["nodes"], spot["gpu_types"]["K80"]["nodes"]) == (8, 4)
    assert settled(said(), {}).data == said()


def test_where_prices_are_stated_a_partition_that_no_file_lists_is_not_free() -> None:
    found = settled(said(), {"partitions": {"spot": {"price_per_node_hour": 2}}})
    planned = {name: one.get("planned", True) for name, one in found.data["partitions"].items()}
    assert planned == {"standard": False, "spot": True, "urgent": False}


def test_a_file_may_ask_for_less() -> None:
    less = {"max_nodes_per_job": 2, "max_time_h": 1, "cores_per_node": 2}
    found = settled(said(), {"partitions": {"standard": less}})
    assert found.problems == ()
    standard = found.data["partitions"]["standard"]
    assert {key: standard[key] for key in less} == less


def test_a_file_names_the_type_that_slurm_does_not() -> None:
    slurm = {"partitions": {"p": {"nodes": 2, "cores_per_node": 1, "gpu": "gpu"}}}
    slurm["partitions"]["p"]["gpus_per_node"] = 4
    stated = {"partitions": {"p": {"gpu": "H100", "gpus_per_node": 4}}}
    found = settled({**slurm, "name": "n"}, stated)
    assert found.problems == ()
    assert found.data["partitions"]["p"]["gpu"] == "H100"


@pytest.mark.parametrize("case", STALE_SITES, ids=lambda case: case.what)
def test_slurms_word_holds_and_what_is_wrong_is_named(case: StaleSite) -> None:
    found = settled(said(), tomllib.loads(case.text))
    named = [".".join(one.path) + f": {one.message}" for one in found.problems]
    assert any(case.names in line for line in named), named
    slurms = said()["partitions"]
    for name, one in found.data["partitions"].items():
        for key in ("nodes", "grace_s", "preemptible", "default_time_h"):
            if key in slurms[name]:
                assert one.get(key) == slurms[name][key], (name, key)
        assert one["cores_per_node"] <= slurms[name]["cores_per_node"]
        assert one.get("max_time_h", 0) <= slurms[name].get("max_time_h", 1e9)
        assert one.get("max_nodes_per_job", 0) <= slurms[name]["nodes"]


def of_spot(**stated: object) -> dict[str, Any]:
    found = settled(said(), {"partitions": {"spot": stated}})
    assert found.problems == ()
    return dict(found.data["partitions"]["spot"])


def test_gpus_that_a_file_leaves_out_are_there_for_who_asks_for_some() -> None:
    assert "gpu_types" not in of_spot(gpus_per_node=0)
    stated = {"partitions": {"spot": {"gpus_per_node": 0}}}
    asked = settled(said(), stated, asks_gpus=True).data["partitions"]["spot"]
    assert asked["gpu_types"] == said()["partitions"]["spot"]["gpu_types"]


def test_less_of_the_gpus_may_be_asked_for_and_by_slurms_words() -> None:
    assert of_spot(gpu_types={"k80": {"nodes": 4, "gpus_per_node": 2}})["gpu_types"] == {
        "k80": {"nodes": 4, "gpus_per_node": 2}
    }
    for stated in ({"gpus_per_node": 0}, {"gpu": "K80", "gpus_per_node": 0}):
        assert not {"gpu", "gpu_types", "gpus_per_node"} & set(of_spot(**stated))


def test_a_shorter_limit_takes_the_default_time_with_it() -> None:
    spot = of_spot(max_time_h=0.05)
    assert (spot["max_time_h"], spot["default_time_h"]) == (0.05, 0.05)
