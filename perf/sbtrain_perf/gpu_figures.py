"""Published figures of GPUs: peak in single precision, memory and its bandwidth.

From the makers' data sheets, at boost clock and without tensor cores. A type whose figures we
are not sure of is left out: it is measured by the first runs.

- One entry is what Slurm counts as one GPU: of a K80, M60, A16, MI250 or MI250X one die.
- A name without a size or a form stands for several boards: memory is that of the largest, so
  that nothing is refused that might fit, speed that of the one which a data centre has.
- H100 is the SXM5 board, H200 the SXM one: the maker writes the form of the others alone.
"""

from __future__ import annotations

from sbtrain_perf.request import GpuType

# Name, FP32 TFLOPS, memory in GiB, GB/s of it, the maker's paper.
_TABLE: tuple[tuple[str, float, float, float, str], ...] = (
    ("K20X", 3.95, 6, 250, "NVIDIA, Tesla K20X board specification"),
    ("K40", 4.29, 12, 288, "NVIDIA, Tesla K40 data sheet"),
    ("K80", 4.113, 12, 240, "NVIDIA, Tesla K80 board specification; a die, 824 MHz"),
    ("M40", 6.84, 24, 288, "NVIDIA, Tesla M40 data sheet; 1114 MHz"),
    ("M60", 4.82, 8, 160, "NVIDIA, Tesla M60 data sheet; a die"),
    ("P4", 5.5, 8, 192, "NVIDIA, Tesla P4 data sheet"),
    ("P40", 12.0, 24, 346, "NVIDIA, Tesla P40 data sheet"),
    ("P100", 9.526, 16, 732, "NVIDIA, Tesla P100 data sheet; PCIe, 1329 MHz"),
    ("P100-12GB", 9.526, 12, 549, "NVIDIA, Tesla P100 data sheet; PCIe, 1329 MHz"),
    ("V100", 15.7, 32, 900, "NVIDIA, Tesla V100 data sheet; SXM2"),
    ("V100-16GB", 15.7, 16, 900, "NVIDIA, Tesla V100 data sheet; SXM2"),
    ("V100-32GB", 15.7, 32, 900, "NVIDIA, Tesla V100 data sheet; SXM2"),
    ("V100S", 16.4, 32, 1134, "NVIDIA, V100S data sheet"),
    ("T4", 8.1, 16, 320, "NVIDIA, T4 data sheet"),
    ("A2", 4.5, 16, 200, "NVIDIA, A2 data sheet"),
    ("A10", 31.2, 24, 600, "NVIDIA, A10 data sheet"),
    ("A16", 4.5, 16, 200, "NVIDIA, A16 data sheet; a die"),
    ("A30", 10.3, 24, 933, "NVIDIA, A30 data sheet"),
    ("A40", 37.4, 48, 696, "NVIDIA, A40 data sheet"),
    ("A100", 19.5, 80, 1555, "NVIDIA, A100 data sheet; bandwidth of 40 GB"),
    ("A100-40GB", 19.5, 40, 1555, "NVIDIA, A100 data sheet"),
    ("A100-80GB", 19.5, 80, 1935, "NVIDIA, A100 data sheet; PCIe"),
    ("L4", 30.3, 24, 300, "NVIDIA, L4 data sheet"),
    ("L40", 90.5, 48, 864, "NVIDIA, L40 data sheet"),
    ("L40S", 91.6, 48, 864, "NVIDIA, L40S data sheet"),
    ("H100", 67.0, 80, 3350, "NVIDIA, H100 data sheet; SXM5"),
    ("H100-PCIe", 51.0, 80, 2000, "NVIDIA, H100 data sheet; PCIe"),
    ("H100-NVL", 60.0, 94, 3900, "NVIDIA, H100 data sheet; NVL"),
    ("H200", 67.0, 141, 4800, "NVIDIA, H200 data sheet; SXM"),
    ("H200-NVL", 60.0, 141, 4800, "NVIDIA, H200 data sheet; NVL"),
    ("GH200", 67.0, 96, 4000, "NVIDIA, GH200 data sheet; HBM3"),
    ("GH200-144GB", 67.0, 144, 4900, "NVIDIA, GH200 data sheet; HBM3e"),
    ("B200", 75.0, 180, 8000, "NVIDIA, HGX and DGX B200 data sheets; an eighth"),
    ("GB200", 80.0, 186, 8000, "NVIDIA, GB200 NVL72 data sheet; a GPU"),
    ("GTX 1080", 8.87, 8, 320, "NVIDIA, GeForce GTX 1080; 1733 MHz"),
    ("GTX 1080 Ti", 11.34, 11, 484, "NVIDIA, GeForce GTX 1080 Ti; 1582 MHz"),
    ("RTX 2080", 10.07, 8, 448, "NVIDIA, Turing white paper; 1710 MHz"),
    ("RTX 2080 Ti", 13.45, 11, 616, "NVIDIA, Turing white paper; 1545 MHz"),
    ("RTX 3090", 35.6, 24, 936, "NVIDIA, Ampere GA102 white paper"),
    ("RTX 4090", 82.6, 24, 1008, "NVIDIA, Ada white paper"),
    ("RTX 5090", 104.8, 32, 1792, "NVIDIA, RTX Blackwell white paper"),
    ("RTX A4000", 19.2, 16, 448, "NVIDIA, RTX A4000 data sheet"),
    ("RTX A4500", 23.7, 20, 640, "NVIDIA, RTX A4500 data sheet"),
    ("RTX A5000", 27.8, 24, 768, "NVIDIA, RTX A5000 data sheet"),
    ("RTX A6000", 38.7, 48, 768, "NVIDIA, RTX A6000 data sheet"),
    ("RTX 6000 Ada", 91.1, 48, 960, "NVIDIA, RTX 6000 Ada data sheet"),
    ("Quadro RTX 6000", 16.3, 24, 672, "NVIDIA, Quadro RTX 6000 data sheet"),
    ("Quadro RTX 8000", 16.3, 48, 672, "NVIDIA, Quadro RTX 8000 data sheet"),
    ("Titan Xp", 12.15, 12, 547.7, "NVIDIA, Titan Xp; 1582 MHz"),
    ("Titan V", 14.9, 12, 652.8, "NVIDIA, Titan V; 1455 MHz"),
    ("Titan RTX", 16.3, 24, 672, "NVIDIA, Turing white paper"),
    ("MI50", 13.4, 32, 1024, "AMD, Radeon Instinct MI50 data sheet"),
    ("MI60", 14.7, 32, 1024, "AMD, Radeon Instinct MI60 data sheet"),
    ("MI100", 23.1, 32, 1228.8, "AMD, Instinct MI100 data sheet"),
    ("MI210", 22.6, 64, 1638.4, "AMD, Instinct MI210 data sheet"),
    ("MI250", 22.6, 64, 1638.4, "AMD, Instinct MI250 data sheet; a die"),
    ("MI250X", 23.95, 64, 1638.4, "AMD, Instinct MI250X data sheet; a die"),
    ("MI300A", 122.6, 128, 5300, "AMD, Instinct MI300A data sheet"),
    ("MI300X", 163.4, 192, 5300, "AMD, Instinct MI300X data sheet"),
    ("MI325X", 163.4, 256, 6000, "AMD, Instinct MI325X data sheet"),
    ("Max 1100", 22.2, 48, 1229, "Intel, Data Center GPU Max 1100"),
    ("Max 1550", 52.4, 128, 3277, "Intel, Data Center GPU Max 1550"),
)

PUBLISHED_GPUS = {
    name: GpuType(
        name=name, peak_tflops=tflops, memory_gib=float(gib), memory_bytes_s=gb_s * 1e9
    )
    for name, tflops, gib, gb_s, _ in _TABLE
}
SOURCES = {name: paper for name, *_, paper in _TABLE}
