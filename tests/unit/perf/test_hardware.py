"""What the user's own sbatch options ask of a node binds the plan."""

from __future__ import annotations

import pytest
from decisions import cluster, decide, partition, request

from sbtrain_perf.hardware import AskedHardware, read_mib
from sbtrain_perf.request import GpuType

K80 = GpuType(name="K80", peak_tflops=4.113, memory_gib=12, memory_bytes_s=2.4e11)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--mem=900G",), "900 GiB a node were asked for, it has 64"),
        (("--mem", "70000"), "68.4 GiB a node were asked for"),
        (("--gres=gpu:8",), "8 GPUs a node were asked for, it has 4"),
        (("--gres=shard:2,gpu:k80:5",), "5 GPUs a node were asked for, it has 4"),
        (("--gpus-per-node", "k80:6"), "6 GPUs a node were asked for, it has 4"),
        (("--gpus-per-node=k80:+6",), "6 GPUs a node were asked for, it has 4"),
        (("--gres=gpu:1k",), "1,024 GPUs a node were asked for, it has 4"),
        (("--gres=gres:gpu:k80=5",), "5 GPUs a node were asked for, it has 4"),
    ],
)
def test_what_no_node_has_is_refused(options: tuple[str, ...], reason: str) -> None:
    shape = cluster(partition(gpu=K80, gpus_per_node=4))
    decision = decide(request(sbatch_options=options), shape)
    assert decision.chosen is None
    assert reason in decision.refusal


@pytest.mark.parametrize(
    ("text", "mib"),
    [
        *(("5", 5), (" 5", 5), ("+5", 5), ("0", 0), ("-0", 0), ("1g", 1024), ("2TB", 2 << 20)),
        *(("1K", 1), ("1024k", 1), ("1025K", 2), ("0K", 0), ("007Mb", 7)),
        *((text, None) for text in ("", "x", "1B", "1 G", "1G ", "-5", "1.5G", "1P", "1GiB")),
    ],
)
def test_sizes_are_read_as_sbatch_reads_them(text: str, mib: int | None) -> None:
    assert read_mib(text) == mib


@pytest.mark.parametrize(
    ("options", "types", "gpus"),
    [
        (("--gres=gpu:4",), set(), 4),
        (("--gres=gpu",), set(), 1),
        (("--gres=gpu:K80:2",), {"k80"}, 2),
        (("--gres=gpu:k80=2",), {"k80"}, 2),
        (("--gres=gpu:3090:2",), {"3090"}, 2),
        (("--gres=gpu:2080ti:2,shard:1",), {"2080ti"}, 2),
        (("--gres=gpu:1g.5gb:7",), {"1g.5gb"}, 7),
        (("--gpus-per-node=k80:2",), {"k80"}, 2),
        (("--gpus-per-node", "3090:2"), {"3090"}, 2),
        (("--gpus-per-node=2",), set(), 2),
    ],
)
def test_types_of_gpus(options: tuple[str, ...], types: set[str], gpus: int) -> None:
    asked = AskedHardware.of(options)
    assert (asked.gpu_types, asked.gpus_per_node) == (types, gpus)


def test_a_type_of_gpu_alone_asks_for_one() -> None:
    assert AskedHardware.of(("--gpus=k80,p100:2",)).gpus == 3
    assert AskedHardware.of(("--gpus=k80:",)).gpus == 0


@pytest.mark.parametrize(
    "options", [("--mem=64G",), ("--mem=0",), ("--mem", "1T", "--mem=2G"), ("--gres=gpu:4",)]
)
def test_what_a_node_has_is_not_refused(options: tuple[str, ...]) -> None:
    shape = cluster(partition(gpu=K80, gpus_per_node=4))
    assert decide(request(sbatch_options=options), shape).chosen is not None
