"""Published figures of GPUs agree with what their makers say of cores, clocks and buses."""

from __future__ import annotations

import pytest

from sbtrain_perf.gpu_figures import PUBLISHED_GPUS, SOURCES

# FP32 cores, boost clock in MHz, width of the memory bus in bits, Gbit/s of each pin.
BOARDS = {
    "K20X": (2688, 732, 384, 5.2),
    "K40": (2880, 745, 384, 6.0),
    "K80": (2496, 824, 384, 5.0),
    "M40": (3072, 1114, 384, 6.0),
    "M60": (2048, 1178, 256, 5.0),
    "P40": (3840, 1531, 384, 7.2),
    "P100": (3584, 1329, 4096, 1.43),
    "P100-12GB": (3584, 1329, 3072, 1.43),
    "V100": (5120, 1530, 4096, 1.754),
    "V100S": (5120, 1597, 4096, 2.214),
    "T4": (2560, 1590, 256, 10.0),
    "A10": (9216, 1695, 384, 12.5),
    "A30": (3584, 1440, 3072, 2.43),
    "A40": (10752, 1740, 384, 14.5),
    "A100-40GB": (6912, 1410, 5120, 2.43),
    "A100-80GB": (6912, 1410, 5120, 3.024),
    "L4": (7424, 2040, 192, 12.5),
    "L40": (18176, 2490, 384, 18.0),
    "L40S": (18176, 2520, 384, 18.0),
    "H100": (16896, 1980, 5120, 5.23),
    "H100-PCIe": (14592, 1755, 5120, 3.19),
    "H200": (16896, 1980, 6144, 6.25),
    "RTX 2080 Ti": (4352, 1545, 352, 14.0),
    "RTX 3090": (10496, 1695, 384, 19.5),
    "RTX 4090": (16384, 2520, 384, 21.0),
    "RTX A6000": (10752, 1800, 384, 16.0),
    "RTX 6000 Ada": (18176, 2505, 384, 20.0),
    "Titan V": (5120, 1455, 3072, 1.7),
    "MI100": (7680, 1502, 4096, 2.4),
    "MI210": (6656, 1700, 4096, 3.2),
    "MI250X": (7040, 1700, 4096, 3.2),
    "MI300X": (19456, 2100, 8192, 5.2),
    "Max 1550": (16384, 1600, 8192, 3.2),
}
# Two operations a core and clock; of these, whose lanes work on two numbers at once, four.
PAIRED = {"MI300X"}


@pytest.mark.parametrize("name", BOARDS)
def test_cores_clock_and_bus_give_the_figures(name: str) -> None:
    cores, mhz, bits, gbit_s = BOARDS[name]
    gpu = PUBLISHED_GPUS[name]
    operations = 4 if name in PAIRED else 2
    assert gpu.peak_tflops == pytest.approx(operations * cores * mhz * 1e6 / 1e12, rel=0.03)
    assert gpu.memory_bytes_s == pytest.approx(bits / 8 * gbit_s * 1e9, rel=0.03)


def test_each_entry_is_whole_and_has_a_source() -> None:
    assert list(SOURCES) == list(PUBLISHED_GPUS)
    for name, gpu in PUBLISHED_GPUS.items():
        assert gpu.name == name
        assert SOURCES[name].split(",")[0] in {"NVIDIA", "AMD", "Intel"}
        assert 1 < gpu.peak_tflops < 200
        assert 4 < gpu.memory_gib < 300
        assert 1e11 < gpu.memory_bytes_s < 1e13


def test_a_name_without_a_size_has_the_largest_memory() -> None:
    for name, gpu in PUBLISHED_GPUS.items():
        family, _, size = name.partition("-")
        if size.endswith("GB") and family != "GH200":  # whose maker writes the larger one
            assert PUBLISHED_GPUS[family].memory_gib >= gpu.memory_gib
