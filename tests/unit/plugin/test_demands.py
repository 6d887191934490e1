"""What sbatch's options ask of a node binds the plan; what it does not follow is said."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from sbtrain.commands.ctl import run
from sbtrain.options.argv import Setting
from sbtrain.sites.layers import load_site
from sbtrain.submission.asked import environment_settings
from sbtrain_perf.coefficients import load_coefficients
from sbtrain_perf.job import job_of
from sbtrain_perf.limits import partition_refusal
from sbtrain_perf.request import NodeRange, Request

SITE = """\
name = "small"
shared_gb_s = 2
shared_client_gb_s = 0.5
[gpus.K80]
peak_tflops = 4.1
memory_gib = 12
memory_gb_s = 240
[gpus.P100]
peak_tflops = 9.5
memory_gib = 16
memory_gb_s = 720
[partitions.plain]
nodes = 4
cores_per_node = 16
memory_gib_per_node = 16
[partitions.big]
nodes = 2
cores_per_node = 16
memory_gib_per_node = 64
gpu = "P100"
gpus_per_node = 4
[partitions.both]
nodes = 6
cores_per_node = 16
memory_gib_per_node = 32
[partitions.both.gpu_types.K80]
nodes = 4
gpus_per_node = 2
[partitions.both.gpu_types.P100]
nodes = 2
gpus_per_node = 4
"""


@pytest.fixture
def site(tmp_path: Path) -> str:
    path = tmp_path / "small.toml"
    path.write_text(SITE)
    return str(path)


@pytest.mark.parametrize(
    ("words", "partition", "reason"),
    [
        ("--mem-per-cpu=4G -c 8", "plain", "32 GiB a node were asked for (--mem-per-cpu), it"),
        ("--mem-per-cpu=2100 -c 8", "plain", "16.4 GiB a node were asked for (--mem-per-cpu)"),
        ("--mem-per-cpu=1G -c 8 --ntasks-per-node=2", "plain", None),
        ("--mem-per-cpu=lots", "plain", None),  # sbatch's to refuse
        ("--mem-per-cpu=900G --mem=1G", "plain", None),
        ("--mem=900G --mem-per-cpu=900G", "plain", "900 GiB a node were asked for (--mem-per-"),
        ("--mem-per-gpu=20G --gres=gpu:4", "big", "80 GiB a node were asked for (--mem-per-g"),
        ("--mem-per-gpu=90G", "big", None),  # of no number of GPUs
        ("--gpus-per-task=3 --ntasks-per-node=2", "big", "6 GPUs a node were asked for (--gpu"),
        ("--gpus-per-task=p100:4", "big", None),
        ("--gpus-per-node=P100:4", "both:P100", None),
        ("--gpus-per-node=P100:2", "both:K80", "another type of GPU was asked for"),
        ("--gpus-per-node=2", "both:K80", "GPUs without a type were asked for"),
        ("-G 9", "big", "9 GPUs were asked for (--gpus), it gives one job 8"),
        ("-G 5 -N 1", "big", "5 GPUs were asked for (--gpus), it gives one job 4"),
        ("-G 8", "big", None),
        ("-G 9", "plain", "GPUs were asked for, it has none"),
        ("--tres-per-task=gres/gpu:1", "plain", "GPUs were asked for, it has none"),
        ("--tres-per-task=cpu:1", "plain", None),
    ],
)
def test_what_a_partition_cannot_give(
    words: str, partition: str, reason: str | None, site: str
) -> None:
    (one,) = (p for p in load_site(site, {}).shape.partitions if p.name == partition)
    nodes = NodeRange(high=1 if "-N 1" in words else None)
    request = Request(script="train.py", sbatch_options=tuple(words.split()), nodes=nodes)
    said = partition_refusal(one, job_of(request, load_coefficients()))
    if reason is None:
        assert said is None
    else:
        assert said is not None
        assert reason in said


def test_the_environment_asks_too() -> None:
    environ = {"SBATCH_MEM_PER_NODE": "900G", "SBATCH_MEM_PER_GPU": "1G"}
    assert set(environment_settings(environ)) == {
        Setting(name="mem", value="900G"),
        Setting(name="mem-per-gpu", value="1G"),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """chosen: the partition, if any. reasons: of partitions that were not weighed."""

    status: int
    chosen: str | None
    nodes: int
    reasons: dict[str, str]
    notes: str


@pytest.fixture
def planned(
    site: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Callable[[str], Said]:
    def plan(words: str) -> Said:
        argv = ["plan", "--json", f"--site={site}", "--train-steps=100", *words.split()]
        status = run(argv, {"SBTRAIN_HOME": str(tmp_path / "home"), "PATH": "/nowhere"})
        said = capsys.readouterr()
        data = json.loads(said.out)
        return Said(
            status=status,
            chosen=data["chosen"] and data["chosen"]["partition"],
            nodes=data["chosen"]["nodes"] if data["chosen"] else 0,
            reasons={r["partition"]: r["rejected"] for r in data["rows"] if not r["nodes"]},
            notes=said.err,
        )

    return plan


def test_memory_leaves_out_the_partitions_that_lack_it(
    planned: Callable[[str], Said],
) -> None:
    said = planned("--mem=40G")
    assert (said.status, said.chosen) == (0, "big")
    assert said.reasons["plain"] == "40 GiB a node were asked for, it has 16"
    assert said.reasons["both:K80"] == "40 GiB a node were asked for, it has 32"


@pytest.mark.parametrize(
    "words", ["--mem 900G", "--gpus-per-n=8", "--gres=gpu:8", "-G 400", "-p plain --mem=17G"]
)
def test_what_nobody_has_is_refused(words: str, planned: Callable[[str], Said]) -> None:
    said = planned(words)
    assert (said.status, said.chosen) == (3, None)
    assert set(said.reasons) == {"plain", "big", "both:K80", "both:P100", "both:mixed"}


def test_the_last_option_of_memory_counts(planned: Callable[[str], Said]) -> None:
    assert planned("-p plain --mem=900G --mem-per-cpu=1G").status == 0
    assert planned("-p plain --mem-per-cpu=1G --mem=900G").status == 3


def test_the_partition_asked_for_is_named_where_it_lacks_something(
    planned: Callable[[str], Said],
) -> None:
    reasons = planned("-p plain --mem=17G").reasons
    assert reasons["plain"] == "17 GiB a node were asked for, it has 16"
    assert reasons["big"] == "not the partition that was asked for (plain)"


def test_another_partition_is_taken_where_any_nodes_of_one_are_too_small(
    planned: Callable[[str], Said],
) -> None:
    said = planned("--gpus-per-node=3")
    assert (said.status, said.chosen) == (0, "big")
    assert said.reasons["both:mixed"] == "3 GPUs a node were asked for, it has 2"
    assert said.reasons["both:P100"].startswith("GPUs without a type were asked for, it is")
    assert "planned as if the trainers of a node had its 4 GPUs" in said.notes
    many = planned("--gpus-per-task=3")
    assert (many.chosen, many.reasons["both:mixed"]) == (
        "big",
        "3 GPUs a node were asked for (--gpus-per-task), it has 2",
    )
    alone = planned("-p both --gpus-per-node=3")
    assert (alone.status, alone.chosen) == (3, None)
    typed = planned("-p both --gres=gpu:p100:3")
    assert (typed.status, typed.chosen) == (0, "both:P100")


def test_a_total_of_gpus_takes_the_nodes_that_hold_them(
    planned: Callable[[str], Said],
) -> None:
    """One node would be as fast here: a hundred steps are a hundred on any number."""
    assert planned("-p big --train-layout=allreduce -G 4").nodes == 1
    said = planned("-p big --train-layout=allreduce -G 8")
    assert (said.chosen, said.nodes, said.notes) == ("big", 2, "")
    assert planned("-p both --gpus=k80:7 --train-layout=allreduce").nodes == 4
    assert planned("-p big -N 1 -G 8").reasons["big"] == (
        "8 GPUs were asked for (--gpus), it gives one job 4"
    )


@pytest.mark.parametrize(
    ("words", "note"),
    [
        ("-n 3 -N 2 --train-layout=allreduce", ""),
        ("-p big -n 9", "--ntasks=9 is not what the plan has"),
        ("-p plain -N 2 --ntasks-per-node=4 --train-layout=allreduce", ""),
        ("-p plain -c 4", "had its 16 cores; --cpus-per-task gives them 4, so they will be"),
        (
            "-p plain -N 2 -n 4 -c 4 --train-layout=allreduce",
            "had its 16 cores; --cpus-per-task gives them 8",
        ),
        ("-p big --gres=gpu:2", "had its 4 GPUs; --gres or --gpus-per-node gives them 2"),
        ("-p big --gpus-per-task=1", "--gpus-per-task gives them 1, so they will be slower"),
        (
            "-p big -n 4 -N 2 --gpus-per-task=1 --train-layout=allreduce",
            "--gpus-per-task gives them 2",
        ),
        ("-p big -N 2 -G 4", "planned with 8 GPUs, all of 2 nodes; --gpus=4 asks for 4"),
        ("-p big -n 2 -N 2 --ntasks-per-node=1 --gres=gpu:4 --train-layout=allreduce", ""),
        ("-p plain -N 2 -c 16 --mem=16G", ""),
    ],
)
def test_what_the_plan_does_not_follow_is_said(
    words: str, note: str, planned: Callable[[str], Said]
) -> None:
    said = planned(words)
    assert said.status == 0
    assert note in said.notes if note else said.notes == ""
