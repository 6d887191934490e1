"""Durations, amounts and ratios in words, as plans and tables show them."""

from __future__ import annotations

import math


def duration(seconds: float) -> str:
    """Two units at most: `0.25 s`, `2 min 3 s`, `5 h 20 min`, `3 d 4 h`."""
    if not math.isfinite(seconds):
        return "for ever"
    if seconds < 9.95:
        return f"{seconds:.2g} s" if seconds < 0.995 else f"{seconds:.1f} s"
    whole = round(seconds)
    for large, small, in_large, in_small in (
        ("d", "h", 86_400, 3600),
        ("h", "min", 3600, 60),
        ("min", "s", 60, 1),
    ):
        rounded = round(whole / in_small) * in_small
        if rounded >= in_large:
            first, rest = divmod(rounded, in_large)
            return f"{first} {large}" + (f" {rest // in_small} {small}" if rest else "")
    return f"{whole} s"


def amount(value: float) -> str:
    """Three digits, an exponent from ten million on: `0.0012`, `3.42`, `1,250`, `2.1e+08`."""
    if value >= 1e7:
        return f"{value:.2g}"
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value >= 0.001 or value == 0 else f"{value:.1g}"


def size(number: float) -> str:
    """Of bytes, three digits: `0 B`, `4 B`, `467 KiB`, `1.46 GiB`, `879 TiB`."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if number < 999.5:
            return f"{number:.3g} {unit}"
        number /= 1024
    return f"{number:,.3g} PiB" if number < 999.5 else f"{number:,.0f} PiB"


def ratio(value: float) -> str:
    return (
        f"{value:.2f}" if value < 1.95 else f"{value:.1f}" if value < 9.95 else f"{value:,.0f}"
    )


def count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def brief_duration(seconds: float) -> str:
    """At most 5 characters, for columns: `0.4s`, `42s`, `3.1m`, `12h`, `3.2d`."""
    if not math.isfinite(seconds):
        return "never"
    for unit, length, most in (("s", 1.0, 99.5), ("m", 60.0, 99.5), ("h", 3600.0, 99.5)):
        if seconds / length < most:
            return _brief(seconds / length) + unit
    days = seconds / 86_400.0
    return (
        _brief(days) if days < 999.5 else f"{days:.0e}".replace("e+0", "e").replace("+", "")
    ) + "d"


def brief_range(low_s: float, high_s: float) -> str:
    """At most 11 characters, for columns: `41-70s`, `55s-1.9m`, `0-3d`."""
    low, high = brief_duration(low_s), brief_duration(high_s)
    if low[-1] == high[-1] and low != "never":
        low = low[:-1]
    return f"{low}-{high}"


def _brief(value: float) -> str:
    return "0" if value < 0.05 else f"{value:.1f}" if value < 9.95 else f"{value:.0f}"
