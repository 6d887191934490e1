"""`sbtrainctl site`: what a site file says, whether it is right, and Slurm's burst buffer."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sbtrain.commands.streams import screen_width, told_while_slow
from sbtrain.errors import SiteError, SlurmError, SlurmMissingError
from sbtrain.sites.layers import Site, form_problems, load_site
from sbtrain.sites.site_file import bundled_sites, site_path, site_schema
from sbtrain_perf.codec import encode
from sbtrain_perf.request import ClusterShape, Partition
from sbtrain_perf.table import Column, laid_out, wrapped
from sbtrain_perf.wording import duration, size

if TYPE_CHECKING:
    from sbtrain.commands.arguments import Subparsers

_INIT = """\
# What Slurm says of this cluster. Keep what you want to change, and delete the rest: it is
# asked of Slurm anyway, which knows better when it changes. What Slurm does not know: prices
# (price_per_node_hour), the filesystem's rates (shared_gb_s, shared_client_gb_s), the nodes'
# links (network_gbit_s) and scratch; `sbtrainctl site keys` lists all keys. As
# /etc/sbtrain/site.toml it is everybody's, as ~/.config/sbtrain/site.toml yours.

"""
_BY_LIBRARY = "(what fits the library)"
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
        description="What is known of the cluster: what Slurm says, and what site files add, "
        "such as prices and how fast filesystems are.",
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    keys = "print every key that a site file may hold, with limits and meaning"
    actions.add_parser("keys", help=keys, description=keys)
    for name, text in (
        ("show", "print what is known of the cluster, as a table"),
        (
            "check",
            "name all that is wrong with the site file, by itself and held against Slurm; exit "
            "status 0 when nothing is, else 10",
        ),
        ("init", "print what Slurm says of the cluster, as a site file to edit"),
        (
            "burst-buffer",
            "print burst_buffer.lua, with which Slurm itself stages data before a job starts",
        ),
    ):
        action = actions.add_parser(name, help=text, description=text)
        if name == "init":
            action.add_argument(
                "--output", type=Path, metavar="FILE", help="write it there, where no file is"
            )
            continue
        action.add_argument(
            "site",
            nargs="?",
            metavar="NAME|PATH",
            help=f"{', '.join(bundled_sites())}, or the path of a file (default: "
            "$SBTRAIN_SITE, ~/.config/sbtrain/site.toml, /etc/sbtrain/*.toml)",
        )
        if name == "show":
            action.add_argument(
                "--origin", action="store_true", help="print each key and who states it"
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
    actions = {
        **{"keys": _keys, "show": _show, "check": _check, "init": _init},
        "burst-buffer": _burst_buffer,
    }
    return actions[args.action](args)


def _found() -> dict[str, Any] | None:
    """What Slurm says now; what it does not is said on stderr."""
    from sbtrain.sites.discovery import discovered
    from sbtrain.slurm.command_client import CommandsClient
    from sbtrain.slurm.node_kinds import nodes_of

    client = CommandsClient(query_timeout_s=20.0)
    try:
        with told_while_slow("asking Slurm what the cluster has", who="sbtrainctl"):
            nodes = nodes_of(client.nodes())
            return discovered(client.partitions(), nodes.kinds, client.config())
    except SlurmMissingError:
        return None
    except SlurmError as error:
        sys.stderr.write(f"sbtrainctl: warning: {error.message}\n")
        return None


def _site(args: argparse.Namespace) -> Site:
    site = load_site(args.site, os.environ, _found())
    if site.invented:
        said = "neither Slurm nor a site file says what the cluster is: figures of 'generic'"
        sys.stderr.write(f"sbtrainctl: warning: {said}\n")
    return site


def _burst_buffer(args: argparse.Namespace) -> int:
    from sbtrain.sites.burst_buffer import CONF_NAME, LUA_NAME, burst_buffer_files
    from sbtrain_staging.publish import publish_bytes

    site = _site(args)
    files = burst_buffer_files(
        site.shape, burst_path=site.data.get("burst_path"), python=args.python
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
    site = _site(args)
    for line in site.stale:
        sys.stderr.write(f"sbtrainctl: warning: {line}\n")
    if args.origin:
        keys = [(".".join(path), value, origin) for path, value, origin in site.stated_by()]
        if args.json:
            rows = [{"key": key, "value": value, "origin": who} for key, value, who in keys]
            sys.stdout.write(json.dumps(rows, indent=2) + "\n")
            return 0
        cells = [(key, json.dumps(value), who) for key, value, who in keys]
        columns = tuple(Column(title=title) for title in ("key", "value", "stated by"))
        blocks = laid_out(columns, cells, width=screen_width())
        sys.stdout.write("".join(f"{line}\n" for block in blocks for line in block))
    elif args.json:
        sys.stdout.write(json.dumps(encode(site.shape), indent=2) + "\n")
    else:
        sys.stdout.write(site_table(site.shape, width=screen_width()))
    return 0


def _check(args: argparse.Namespace) -> int:
    named = args.site or os.environ.get("SBTRAIN_SITE")
    problems = form_problems(site_path(named)) if named else ()
    if not problems:
        site = load_site(args.site, os.environ, _found(), to_run=True)
        problems = site.stale
    files = "no site file"
    if not named and not problems and site.files and not site.invented:
        files = ", ".join(str(one.path) for one in site.files)
    said = str(site_path(named)) if named else files
    if args.json:
        text = json.dumps({"site": said, "problems": list(problems)}, indent=2)
        sys.stdout.write(f"{text}\n")
    elif problems:
        sys.stderr.write("".join(f"{problem}\n" for problem in problems))
    else:
        sys.stdout.write(f"{said}: nothing is wrong\n")
    return SiteError.exit_code if problems else 0


def _init(args: argparse.Namespace) -> int:
    from sbtrain.sites.discovery import as_toml

    found = _found()
    if found is None:
        raise SiteError(
            "Slurm says nothing of a cluster here",
            hint="run it where sinfo works; docs/site-keys.md has every key",
        )
    text = _INIT + as_toml(found)
    if args.output is None:
        sys.stdout.write(text)
        return 0
    try:
        with args.output.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise SiteError(
            f"cannot write {args.output}: {error.strerror}",
            hint="name a file that is not there yet, in a folder that you may write",
        ) from error
    sys.stdout.write(f"{args.output}\n")
    return 0


def site_table(shape: ClusterShape, *, width: int) -> str:
    said = [
        f"cluster {shape.name} ({shape.source})",
        f"shared filesystem: {_rate(shape.shared_bytes_s)}, one client "
        f"{_rate(shape.shared_client_bytes_s)}{' (assumed)' if shape.assumed else ''}",
        f"signal before preemption: {shape.preemption_signal}; a requeued job waits "
        f"{duration(shape.requeue_delay_s)}; MPI by srun --mpi="
        + (shape.mpi_plugin or _BY_LIBRARY),
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
        "-" if one.memory_gib_per_node is None else f"{one.memory_gib_per_node:g} GiB",
        gpus,
        f"{one.price_per_node_hour:g}" if one.price_per_node_hour else "-",
        duration(one.max_time_s) if one.max_time_s else "no limit",
        preempted,
        scratch,
    )


def _rate(bytes_s: float) -> str:
    return f"{bytes_s / 1e9:g} GB/s"
