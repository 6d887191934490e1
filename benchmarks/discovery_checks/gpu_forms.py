"""GPUs as Slurm writes them of nodes of real sites (GRES and TRES, NVML's, RSMI's and oneAPI's
names, features, partitions), with what each is; among them words that tell nothing."""

from __future__ import annotations

from dataclasses import dataclass

from bench_table import BenchRow

from sbtrain.sites.gpu_names import NodeGpus, node_gpus
from sbtrain.slurm.gres import read_gres


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """features and partitions: with blanks between. gpus: what it is."""

    gres: str
    features: str
    partitions: str
    gpus: tuple[NodeGpus, ...]

    def read(self) -> tuple[NodeGpus, ...]:
        return node_gpus(
            read_gres(self.gres),
            features=self.features.split(),
            partitions=self.partitions.split(),
        )


def _form(
    gres: str, *gpus: tuple[str, str, int], f: str = "", p: str = "", by: str = ""
) -> Form:
    """gpus: name, word for sbatch, count. by: the words that told."""
    found = tuple(
        NodeGpus(name=name, gres=word, count=count, guessed_from=tuple(by.split()))
        for name, word, count in gpus
    )
    return Form(gres=gres, features=f, partitions=p, gpus=found)


GRES = (
    _form("gpu:a100:4(S:0-1)", ("A100", "gpu:a100", 4)),
    _form(
        "gpu:nvidia_a100-sxm4-40gb:8(S:0,1,4-7)",
        ("A100-40GB", "gpu:nvidia_a100-sxm4-40gb", 8),
    ),
    _form("gpu:nvidia_a100_80gb_pcie:2", ("A100-80GB", "gpu:nvidia_a100_80gb_pcie", 2)),
    _form("gpu:NVIDIA_A100-SXM4-80GB:8", ("A100-80GB", "gpu:NVIDIA_A100-SXM4-80GB", 8)),
    _form("gpu:a100-40:8", ("A100-40GB", "gpu:a100-40", 8)),
    _form("gpu:a100_80g:4(S:0-1)", ("A100-80GB", "gpu:a100_80g", 4)),
    _form("gpu:nvidia_h100_80gb_hbm3:4(S:0-3)", ("H100", "gpu:nvidia_h100_80gb_hbm3", 4)),
    _form("gpu:h100:8", ("H100", "gpu:h100", 8)),
    _form("gpu:nvidia_h100_pcie:1", ("H100-PCIe", "gpu:nvidia_h100_pcie", 1)),
    _form("gpu:nvidia_h100_nvl:2", ("H100-NVL", "gpu:nvidia_h100_nvl", 2)),
    _form("gpu:a100sxm4:8", ("A100", "gpu:a100sxm4", 8)),
    _form("gpu:h100pcie:2", ("H100-PCIe", "gpu:h100pcie", 2)),
    _form("gpu:nvidia_h200:8(S:0-1)", ("H200", "gpu:nvidia_h200", 8)),
    _form("gpu:nvidia_gh200_480gb:4", ("GH200", "gpu:nvidia_gh200_480gb", 4)),
    _form("gpu:nvidia_gh200_120gb:4", ("GH200", "gpu:nvidia_gh200_120gb", 4)),
    _form("gpu:nvidia_gh200_144g_hbm3e:1", ("GH200-144GB", "gpu:nvidia_gh200_144g_hbm3e", 1)),
    _form("gpu:gh200", ("GH200", "gpu:gh200", 1)),
    _form("gpu:nvidia_b200:8(S:0-1)", ("B200", "gpu:nvidia_b200", 8)),
    _form("gpu:tesla_v100-sxm2-32gb:2", ("V100-32GB", "gpu:tesla_v100-sxm2-32gb", 2)),
    _form("gpu:tesla_v100-pcie-16gb:2(S:0)", ("V100-16GB", "gpu:tesla_v100-pcie-16gb", 2)),
    _form("gpu:v100-32:8", ("V100-32GB", "gpu:v100-32", 8)),
    _form("gpu:tesla_v100s-pcie-32gb:3", ("V100S", "gpu:tesla_v100s-pcie-32gb", 3)),
    _form("gpu:Tesla-V100-SXM2-16GB:4", ("V100-16GB", "gpu:Tesla-V100-SXM2-16GB", 4)),
    _form("gpu:tesla_p100-sxm2-16gb:4", ("P100", "gpu:tesla_p100-sxm2-16gb", 4)),
    _form("gpu:tesla_p100-pcie-12gb:2", ("P100-12GB", "gpu:tesla_p100-pcie-12gb", 2)),
    _form("gpu:tesla_k80:4(S:0-1)", ("K80", "gpu:tesla_k80", 4)),
    _form("gpu:tesla_t4:1", ("T4", "gpu:tesla_t4", 1)),
    _form("gpu:m60:8", ("M60", "gpu:m60", 8)),
    _form("gpu:NVIDIA_L40S:4", ("L40S", "gpu:NVIDIA_L40S", 4)),
    _form("gpu:l40:4,shard:l40:32", ("L40", "gpu:l40", 4)),
    _form("gpu:nvidia_a30:2", ("A30", "gpu:nvidia_a30", 2)),
    _form("gpu:NVIDIA_A40:1", ("A40", "gpu:NVIDIA_A40", 1)),
    _form("gpu:rtx_2080ti:4", ("RTX 2080 Ti", "gpu:rtx_2080ti", 4)),
    _form("gpu:2080ti:8", ("RTX 2080 Ti", "gpu:2080ti", 8)),
    _form("gpu:nvidia_geforce_rtx_2080_ti:8", ("RTX 2080 Ti",
          "gpu:nvidia_geforce_rtx_2080_ti", 8)),
    _form("gpu:geforce_gtx_1080_ti:4", ("GTX 1080 Ti", "gpu:geforce_gtx_1080_ti", 4)),
    _form("gpu:gtx1080ti:1", ("GTX 1080 Ti", "gpu:gtx1080ti", 1)),
    _form("gpu:nvidia_geforce_rtx_3090:8", ("RTX 3090", "gpu:nvidia_geforce_rtx_3090", 8)),
    _form("gpu:3090:4", ("RTX 3090", "gpu:3090", 4)),
    _form("gpu:rtx4090:2", ("RTX 4090", "gpu:rtx4090", 2)),
    _form("gpu:nvidia_rtx_a6000:4", ("RTX A6000", "gpu:nvidia_rtx_a6000", 4)),
    _form("gpu:a5000:4", ("RTX A5000", "gpu:a5000", 4)),
    _form("gpu:rtx_ada_6000:8", ("RTX 6000 Ada", "gpu:rtx_ada_6000", 8)),
    _form("gpu:quadro_rtx_6000:4", ("Quadro RTX 6000", "gpu:quadro_rtx_6000", 4)),
    _form("gpu:nvidia_rtx_6000_ada_generation:4", ("RTX 6000 Ada",
          "gpu:nvidia_rtx_6000_ada_generation", 4)),
    _form("gpu:Titan_RTX:1", ("Titan RTX", "gpu:Titan_RTX", 1)),
    _form("gpu:titan_v:2", ("Titan V", "gpu:titan_v", 2)),
    _form("gpu:mi250:8", ("MI250", "gpu:mi250", 8)),
    _form("gpu:amd_instinct_mi250x_oam:8(S:0-7)", ("MI250X",
          "gpu:amd_instinct_mi250x_oam", 8)),
    _form("gpu:amd_instinct_mi300x_oam:8(S:0-1)", ("MI300X",
          "gpu:amd_instinct_mi300x_oam", 8)),
    _form("gpu:mi300a:4", ("MI300A", "gpu:mi300a", 4)),
    _form("gpu:amd_instinct_mi210:2", ("MI210", "gpu:amd_instinct_mi210", 2)),
    _form("gpu:intel_data_center_gpu_max_1550:4", ("Max 1550",
          "gpu:intel_data_center_gpu_max_1550", 4)),
    _form("gpu:intel_gpu_max_1100:4", ("Max 1100", "gpu:intel_gpu_max_1100", 4)),
    # Several kinds, other resources, several entries of one kind.
    _form("gpu:v100:2,gpu:p100:2", ("V100", "gpu:v100", 2), ("P100", "gpu:p100", 2)),
    _form("gpu:v100:2(S:0),gpu:v100:2(S:1)", ("V100", "gpu:v100", 4)),
    _form("gpu:h100:4,nvme:1", ("H100", "gpu:h100", 4)),
    _form("craynetwork:4,gpu:a100:4", ("A100", "gpu:a100", 4)),
    _form("gpu:a100:no_consume:4", ("A100", "gpu:a100", 4)),
    _form("gpu:a100:3,gpu:a100_1g.5gb:7", ("A100", "gpu:a100", 3),
          ("A100-1g.5gb", "gpu:a100_1g.5gb", 7)),
    # As jobs, TRES and what is in use are written.
    _form("gpu:h100(IDX:0-3)", ("H100", "gpu:h100", 4)),
    _form("gpu:a100:2(IDX:0,5)", ("A100", "gpu:a100", 2)),
    _form("gres/gpu:a100=4", ("A100", "gpu:a100", 4)),
    _form("gres:gpu:k80:1", ("K80", "gpu:k80", 1)),
    _form("cpu=64,mem=512000M,billing=64,gres/gpu=4,gres/gpu:h100=4", ("H100", "gpu:h100", 4)),
    _form("gres/gpu=4,gres/gpu:v100=2,gres/gpu:p100=2", ("V100", "gpu:v100", 2),
          ("P100", "gpu:p100", 2)),
    _form("cpu=8,gres/gpu=2,gres/gpumem=160G", ("gpu", "gpu", 2)),
)  # fmt: skip

UNTYPED = (
    _form("gpu:4", ("A100", "gpu", 4), f="a100", by="a100"),
    _form("gpu:4", ("A100-80GB", "gpu", 4), f="ib a100 A100-SXM4-80GB",
          by="a100 A100-SXM4-80GB"),
    _form("gpu:4(S:0-1)", ("V100", "gpu", 4), f="GPU_GEN:VLT GPU_BRD:TESLA GPU_SKU:V100_SXM2 "
          "GPU_MEM:32GB", by="GPU_SKU:V100_SXM2"),
    _form("gpu:8", ("RTX 2080 Ti", "gpu", 8), f="xeon-4110 rtx2080ti", by="rtx2080ti"),
    _form("gpu:2", ("T4", "gpu", 2), f="t4", by="t4"),
    _form("gpu:4", ("A100", "gpu", 4), p="gpuA100x4", by="gpuA100x4"),
    _form("gpu:8", ("MI100", "gpu", 8), p="gpuMI100x8", by="gpuMI100x8"),
    _form("gpu:4", ("A100", "gpu", 4), p="all gpu-a100-dev gpu-a100",
          by="gpu-a100-dev gpu-a100"),
    _form("gpu:8", ("V100-32GB", "gpu", 8), p="v100-32", by="v100-32"),
    _form("gpu:8", ("H100", "gpu", 8), p="smith-h100", by="smith-h100"),
    _form("gpu:1", ("GH200", "gpu", 1), p="gh", f="gh200", by="gh200"),
    _form("gpu:4", ("A40", "gpu", 4), p="a40-long", by="a40-long"),
    _form("gpu:4", ("RTX 3090", "gpu", 4), p="gpu-3090", by="gpu-3090"),
    _form("gpu:tesla:4", ("V100", "gpu:tesla", 4), f="v100", by="v100"),
    _form("gpu:ampere:4", ("A100", "gpu:ampere", 4), f="a100", by="a100"),
    _form("gpu:4", ("V100", "gpu", 4), f="volta_v100", by="volta_v100"),
    _form("gpu:(null):2", ("K80", "gpu", 2), f="k80", p="main", by="k80"),
)  # fmt: skip

# Nothing more may be said of these than stands there.
UNTOLD = (
    _form("(null)", f="a100", p="gpu-a100"),
    _form("", f="h100"),
    _form("shard:8", f="a100"),
    _form("mps:400"),
    _form("craynetwork:4"),
    _form("gpu:0", f="a100"),
    _form("gpu:4", ("gpu", "gpu", 4), p="gpu boost_usr_prod", f="ib skylake nvme"),
    _form("gpu:4", ("gpu", "gpu", 4), f="a100 v100"),
    _form("gpu:4", ("gpu", "gpu", 4), f="h100", p="v100"),
    _form("gpu:4", ("gpu", "gpu", 4), p="gpu-a100-v100"),
    _form("gpu:4", ("gpu", "gpu", 4), f="rack-a100"),
    _form("gpu:4", ("gpu", "gpu", 4), p="row-h100"),
    _form("gpu:4", ("gpu", "gpu", 4), f="no-v100"),
    _form("gpu:4", ("gpu", "gpu", 4), f="a-100 ga100 a1000 xa100"),
    _form("gpu:4", ("gpu", "gpu", 4), f="3090", p="cms-t4"),
    _form("gpu:8", ("gpu", "gpu", 8), p="p4"),  # a cloud's machines with A100
    _form("gpu:7", ("gpu", "gpu", 7), f="a100 mig"),
    _form("gpu:7", ("gpu", "gpu", 7), f="h100mig"),
    _form("gpu:2", ("gpu", "gpu", 2), p="rtx6000"),  # of two generations
    _form("gpu:4", ("gpu", "gpu", 4), f="a100-512gb"),  # the node's
    _form("gpu:a100:4", ("A100", "gpu:a100", 4), f="v100", p="h100"),
    _form("gpu:a100:2,gpu:2", ("A100", "gpu:a100", 2), ("gpu", "gpu", 2), f="a100"),
    _form("gpu:1g.5gb:7", ("1g.5gb", "gpu:1g.5gb", 7), f="a100"),
    _form("gpu:a100_1g.5gb:7", ("A100-1g.5gb", "gpu:a100_1g.5gb", 7)),
    _form("gpu:nvidia_h100_80gb_hbm3_1g.10gb:7", ("H100-1g.10gb",
          "gpu:nvidia_h100_80gb_hbm3_1g.10gb", 7)),
    _form("gpu:nvidia_a40-48q:2", ("nvidia_a40-48q", "gpu:nvidia_a40-48q", 2)),
    _form("gpu:a10-80:2", ("a10-80", "gpu:a10-80", 2)),  # no A10 has that
    _form("gpu:a100x:2", ("a100x", "gpu:a100x", 2)),
    _form("gpu:v100l:4", ("v100l", "gpu:v100l", 4)),
    _form("gpu:volta:2", ("volta", "gpu:volta", 2)),
    _form("gpu:tesla:4", ("tesla", "gpu:tesla", 4)),
    _form("gpu:rtx6000:4", ("rtx6000", "gpu:rtx6000", 4)),
    _form("gpu:Quadro_RTX:1", ("Quadro_RTX", "gpu:Quadro_RTX", 1)),
    _form("gpu:titanx:2", ("titanx", "gpu:titanx", 2)),
    _form("gpu:H20:8", ("H20", "gpu:H20", 8)),
    _form("gpu:amd_instinct_mi355_oam:8", ("amd_instinct_mi355_oam",
          "gpu:amd_instinct_mi355_oam", 8)),
    _form("gpu:nvidia_a100-sxm-64gb:4", ("A100-64GB", "gpu:nvidia_a100-sxm-64gb", 4)),
    _form("gpu:nvidia_geforce_rtx_4090_d:8", ("nvidia_geforce_rtx_4090_d",
          "gpu:nvidia_geforce_rtx_4090_d", 8)),
    _form("gpu:pvc:4", ("pvc", "gpu:pvc", 4)),
)  # fmt: skip

FORMS = (*GRES, *UNTYPED, *UNTOLD)


def wrong_forms() -> list[str]:
    """Each with what was read of it."""
    return [
        f"{one.gres!r}, features {one.features!r}, partitions {one.partitions!r}: "
        f"{one.read()}, not {one.gpus}"
        for one in FORMS
        if one.read() != one.gpus
    ]


def gpu_rows() -> list[BenchRow]:
    invented = sum(one.read() != one.gpus for one in UNTOLD)
    return [
        BenchRow(
            what="forms of GPUs read wrongly",
            yardstick=f"{len(FORMS)} written by hand",
            value=len(wrong_forms()),
            bar=0,
        ),
        BenchRow(
            what="of them, said more than stands there",
            yardstick=f"{len(UNTOLD)} that tell nothing more",
            value=invented,
            bar=0,
        ),
    ]
