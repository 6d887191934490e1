"""The codec reads what it wrote and refuses everything else, naming the place."""

import dataclasses

import pytest

from plans import example_plan
from sbtrain_perf.codec import ShapeError, decode, encode, plan_from_json, plan_to_json
from sbtrain_perf.errors import PlanError
from sbtrain_perf.request import Partition


def test_a_plan_survives_the_way_through_json() -> None:
    plan = example_plan()
    assert plan_from_json(plan_to_json(plan)) == plan


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"nodes": "4"}, "nodes"),
        ({"nodes": True}, "nodes"),
        ({"price_per_node_hour": float("nan")}, "price_per_node_hour"),
        ({"speed": 1}, "speed"),
        ({"gpu": {"name": "K80"}}, "gpu.peak_tflops"),
    ],
)
def test_what_does_not_fit_is_refused_by_its_path(change: dict[str, object], path: str) -> None:
    good = encode(
        Partition(
            name="p", nodes=2, max_nodes_per_job=2, cores_per_node=4, memory_gib_per_node=8
        )
    )
    with pytest.raises(ShapeError) as caught:
        decode(Partition, good | change)
    assert caught.value.path == path


def test_a_plan_of_another_version_is_refused_in_words() -> None:
    text = plan_to_json(dataclasses.replace(example_plan(), version=99))
    with pytest.raises(PlanError, match="version 99"):
        plan_from_json(text)
