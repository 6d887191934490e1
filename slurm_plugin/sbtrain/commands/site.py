"""`sbtrainctl site`: what a site file says, whether it is right, and Slurm's burst buffer."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from sbtrain.commands.streams import screen_width
from sbtrain.errors import SiteError
from sbtrain.sites.site_file import (
    bundled_sites,
    burst_path,
    check_site,
    load_site,
    site_path,
    site_schema,
)
from sbtrain_perf.codec import encode
from sbtrain_perf.request import ClusterShape, Partition
from sbtrain_perf.table import Column, laid_out, wrapped
from sbtrain_perf.wording import duration, size

if TYPE_CHECKING:
    from sbtrain.commands.arguments import Subparsers

_COLUMNS = (
    Column(title="partition"),
    *(Column(title=name, right=True) for name in ("nodes", "per job", "cores", "memory")),
    Column(title="GPUs"),
    *(Column(title="price/h", right=True), Column(title="longest", right=True)),
    *(Column(title="preempted"), Column(title="scratch")),
)


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "site",
        description="A site file describes a cluster to the planner: its partitions, their "
        "nodes, what they cost, how fast its filesystems are.",
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    keys = "print every key that a site file may hold, with limits and meaning"
    actions.add_parser("keys", help=keys, description=keys)
    for name, text in (
        ("show", "print what the file says, as a table"),
        (
            "check",
            "name all that is wrong with the file; exit status 0 when nothing is, else 10",
        ),
        (
            "burst-buffer",
            "print burst_buffer.lua, with which Slurm itself stages data before a job starts",
        ),
    ):
        action = actions.add_parser(name, help=text, description=text)
        action.add_argument(
            "site",
            nargs="?",
            metavar="NAME|PATH",
            help=f"{', '.join(bundled_sites())}, or the path of a file (default: "
            "$SBTRAIN_SITE, else the private Slurm in use, else generic)",
        )
        if name != "burst-buffer":
            action.add_argument("--json", action="store_true", help="print JSON")
            continue
        action.add_argument(
            "--output",
            type=Path,
            metavar="DIR",
            help="write burst_buffer.lua and burst_buffer.conf into DIR instead",
        )
        action.add_argument(
            "--python",
            default=sys.executable,
            metavar="PATH",
            help="the Python that runs sbtrain on the host of slurmctld (default: this one)",
        )


def run(args: argparse.Namespace) -> int:
    """Raises SiteError; the caller prints it and exits with its code."""
    actions = {"keys": _keys, "show": _show, "check": _check, "burst-buffer": _burst_buffer}
    return actions[args.action](args)


def _burst_buffer(args: argparse.Namespace) -> int:
    from sbtrain.sites.burst_buffer import CONF_NAME, LUA_NAME, burst_buffer_files
    from sbtrain_staging.publish import publish_bytes

    files = burst_buffer_files(
        load_site(args.site, os.environ),
        burst_path=burst_path(args.site, os.environ),
        python=args.python,
    )
    if args.output is None:
        sys.stdout.write(files.lua)
        conf = "".join(f"   {line}\n" for line in files.conf.splitlines())
        sys.stderr.write(f"{files.advice}burst_buffer.conf is\n{conf}")
        return 0
    for name, text in ((LUA_NAME, files.lua), (CONF_NAME, files.conf)):
        path = args.output / name
        try:
            publish_bytes(path, text.encode(), mode=0o644)
        except OSError as error:
            raise SiteError(
                f"cannot write {path}: {error.strerror}",
                hint="name with --output a folder that you may write",
            ) from error
        sys.stdout.write(f"{path}\n")
    sys.stderr.write(files.advice)
    return 0


def _keys(_: argparse.Namespace) -> int:
    from sbtrain.sites.key_page import key_page

    sys.stdout.write(key_page(site_schema()))
    return 0


def _show(args: argparse.Namespace) -> int:
    shape = load_site(args.site, os.environ)
    if args.json:
        sys.stdout.write(json.dumps(encode(shape), indent=2) + "\n")
    else:
        sys.stdout.write(site_table(shape, width=screen_width()))
    return 0


def _check(args: argparse.Namespace) -> int:
    path = site_path(args.site, os.environ)
    problems = check_site(args.site, os.environ)
    if args.json:
        said = {"site": str(path), "problems": list(problems)}
        sys.stdout.write(json.dumps(said, indent=2) + "\n")
    elif problems:
        sys.stderr.write("".join(f"{problem}\n" for problem in problems))
    else:
        sys.stdout.write(f"{path}: nothing is wrong\n")
    return SiteError.exit_code if problems else 0


def site_table(shape: ClusterShape, *, width: int) -> str:
    said = [
        f"cluster {shape.name} ({shape.source})",
        f"shared filesystem: {_rate(shape.shared_bytes_s)}, one client "
        f"{_rate(shape.shared_client_bytes_s)}",
        f"signal before preemption: {shape.preemption_signal}; a requeued job waits "
        f"{duration(shape.requeue_delay_s)}; MPI by srun --mpi={shape.mpi_plugin}",
    ]
    lines = [line for text in said for line in wrapped(text, width=width)]
    rows = [_cells(partition) for partition in shape.partitions]
    lines += ["", *(line for block in laid_out(_COLUMNS, rows, width=width) for line in block)]
    return "\n".join(lines) + "\n"


def _cells(one: Partition) -> tuple[str, ...]:
    gpus = f"{one.gpus_per_node} x {one.gpu.name}" if one.gpu else "-"
    scratch = "-"
    if one.scratch_path:
        held = f" ({size(one.scratch_bytes)})" if one.scratch_bytes else ""
        scratch = f"{one.scratch_path}{held}"
    preempted = "never"
    if one.preemptible:
        mean_s = one.mean_time_to_preemption_s
        preempted = f"in {duration(mean_s)}" if mean_s else "yes"
    return (
        one.name,
        f"{one.nodes:,}",
        f"{one.max_nodes_per_job:,}",
        str(one.cores_per_node),
        f"{one.memory_gib_per_node:g} GiB",
        gpus,
        f"{one.price_per_node_hour:g}",
        duration(one.max_time_s) if one.max_time_s else "no limit",
        preempted,
        scratch,
    )


def _rate(bytes_s: float) -> str:
    return f"{bytes_s / 1e9:g} GB/s"
