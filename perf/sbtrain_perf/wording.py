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
        if whole >= in_large:
            first, rest = divmod(round(whole / in_small) * in_small, in_large)
            return f"{first} {large}" + (f" {rest // in_small} {small}" if rest else "")
    return f"{whole} s"


def amount(value: float) -> str:
    """Three digits, never an exponent below a billion: `0.0012`, `3.42`, `1,250`."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value >= 0.001 or value == 0 else f"{value:.1g}"


def ratio(value: float) -> str:
    return (
        f"{value:.2f}" if value < 1.95 else f"{value:.1f}" if value < 9.95 else f"{value:,.0f}"
    )


def count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
