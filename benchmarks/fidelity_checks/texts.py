"""Random batch scripts, right and wrong ones."""

from __future__ import annotations

import random

from fidelity_checks.options import option

_FIRST = (b"#!/bin/sh", b"#!/bin/bash", b"#!/bin/bash -l", b"#! /bin/sh",
          b"#!/usr/bin/env bash", b"#!/usr/bin/env python3", b"#!/bin/csh",
          b"#!/nope")  # fmt: skip
_ODD_FIRST = (b"", b" #!/bin/sh", b"\xef\xbb\xbf#!/bin/sh", b"#", b"#!", b"echo x",
              b"#!/bin/sh\t", b"\n#!/bin/sh")  # fmt: skip
_HEADS = ("#SBATCH", "#SBATCH", "#SBATCH", "#SBATCH", "#SBATCH\t", "#SBATCH ", "# SBATCH",
          "#sbatch", " #SBATCH", "\t#SBATCH", "##SBATCH", "#SBATCHx", "#PBS", "#BSUB", "#SLURM",
          "# SBTRAIN", "#SBTRAINING", "#sbtrain")  # fmt: skip
_PBS = ("-N name", "-l walltime=01:00:00", "-l nodes=2:ppn=2", "-q spot", "-o out", "-j oe",
        "-V", "-l mem=1gb", "-W block=true", "-A lab", "-m n", "-r n", "-x",
        "-l select=1:ncpus=2", "-t 1-3", "-h", "-a 1200", "-e err", "-v A=1")  # fmt: skip
_BSUB = ("-n 2", "-J name", "-W 10", "-q spot", "-o out", "-R x", "-x", "-cwd /tmp", "-M 100")
_BODY = (b"echo hi", b"true", b"srun hostname", b"# a comment", b"",
         b"cat <<EOF\n#SBATCH -N2\nEOF",
         b"echo '#SBTRAIN --train-steps 5'", b"module load x", b": caf\xc3\xa9", b": \xff\xfe",
         b"exit 3", b"echo $0 \"$@\"", b"import os", b"print('join()')")  # fmt: skip
_PYTHON = (b"import sys", b"print('join', sys.argv)", b"from os.path import join",
           b"join('a', 'b')", b"# sbtrain", b"x = 'from sbtrain import join'", b"def f(:",
           b"#SBATCH -N2")  # fmt: skip


def script_text(rng: random.Random, *, python: bool) -> bytes:
    odd = rng.random()
    if odd < 0.005:
        return b""
    if odd < 0.01:
        return b" \n\t\n"
    if odd < 0.012:
        return b"#!/bin/sh\n" + b"# filler\n" * rng.choice((100, 700_000))
    lines = [rng.choice(_FIRST) if python or odd > 0.03 else rng.choice(_ODD_FIRST)]
    if python:  # without a #! it would be ours
        lines = [b"#!/usr/bin/env python3"]
    lines += [_directive(rng) for _ in range(rng.choice((0, 0, 0, 1, 1, 2, 3)))]
    if rng.random() < 0.05:
        lines.insert(
            rng.randint(1, len(lines)), b"#SBATCH " + rng.choice((b"hetjob", b"packjob"))
        )
    lines += rng.choices(_PYTHON if python else _BODY, k=rng.randint(0, 4))
    if rng.random() < 0.08:
        lines.insert(1, rng.choice(_BODY))  # before the directives
    if rng.random() < 0.05:
        lines.append(_directive(rng))
    end = rng.choices((b"\n", b"\r\n", b"\r"), (100, 1, 0.3))[0]
    text = end.join(lines) + (end if rng.random() < 0.9 else b"")
    if rng.random() < 0.005:
        text += b"\0x\n"
    return text


def _directive(rng: random.Random) -> bytes:
    head = rng.choice(_HEADS[:4]) if rng.random() < 0.7 else rng.choice(_HEADS)
    if head == "#PBS":
        rest = rng.choice(_PBS)
    elif head == "#BSUB":
        rest = rng.choice(_BSUB)
    else:
        rest = " ".join(_quoted(rng, word) for word in option(rng))
        if rng.random() < 0.15:
            rest += " " + " ".join(_quoted(rng, word) for word in option(rng))
    blank = rng.choices((" ", "  ", "\t", ""), (40, 4, 4, 1))[0]
    tail = rng.choices(("", " ", " # why", "\t#x", " #"), (60, 2, 2, 1, 1))[0]
    return f"{head}{blank}{rest}{tail}".encode("utf-8", "surrogateescape")


def _quoted(rng: random.Random, word: str) -> str:
    kind = rng.random()
    if (" " in word and kind < 0.93) or kind < 0.02:
        return rng.choice((f'"{word}"', f"'{word}'", word.replace("=", '="', 1) + '"'))
    if kind < 0.025:
        return rng.choice((f'"{word}', f"{word}'", f"\\{word}"))
    return word
