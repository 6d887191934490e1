"""`sbtrainctl cluster`: a private Slurm of several nodes on this host."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sbtrain.cluster import NodeState, PrivateCluster, Status
    from sbtrain.commands.arguments import Subparsers

DEFAULT_FOLDER = Path(".sbtrain/cluster")

_DESCRIPTION = (
    "A private Slurm on this host, of the Slurm that is installed here: nodes c1, c2 ... "
    "without GPU and g1, g2 ... with two fake ones each, in the partitions standard (the c "
    "nodes), spot (all nodes; its jobs may be preempted) and urgent (all nodes; preempts "
    "spot). It needs no root and changes nothing of the host: what it writes lies in its "
    "folder, but for a link under /tmp where the folder's path is too long for Slurm. Several "
    "can run at once."
)


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "cluster",
        description=_DESCRIPTION,
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, text in (
        ("up", "start it, or mend it: what of it has died is started again"),
        (
            "down",
            "end its daemons and jobs; the queue stays in the folder, and the next 'up' goes "
            "on with it",
        ),
        ("status", "show its daemons and nodes; exit status 0 when all are up, else 1"),
        ("env", 'print the lines that have a shell use it: eval "$(sbtrainctl cluster env)"'),
    ):
        action = actions.add_parser(name, help=text, description=text)
        action.add_argument(
            "--folder",
            type=Path,
            default=DEFAULT_FOLDER,
            metavar="DIR",
            help="the cluster's folder (default: ./%(default)s)",
        )
        action.add_argument("--json", action="store_true", help="print JSON")
        if name == "up":
            action.add_argument(
                "--nodes",
                type=_count,
                metavar="N",
                help="nodes of each of the two kinds, 64 at most (default: as in the folder, "
                "else 4)",
            )
            action.add_argument(
                "--accounting",
                action="store_true",
                default=None,
                help="with slurmdbd and MariaDB, so that sacct works (default: as in the "
                "folder, else without)",
            )
        if name == "down":
            action.add_argument(
                "--wipe", action="store_true", help="then remove the folder with all it holds"
            )


def run(args: argparse.Namespace) -> int:
    """Raises ClusterError; the caller prints it and exits with its code."""
    actions = {"up": _up, "down": _down, "status": _status, "env": _env}
    return actions[args.action](args)


def _up(args: argparse.Namespace) -> int:
    from sbtrain.cluster import up

    cluster = up(
        args.folder,
        nodes_per_kind=args.nodes,
        accounting=args.accounting,
        progress=_progress(),
    )
    if args.json:
        _write_json(cluster)
        return 0
    did = "is up" if cluster.started else "was up already"
    sys.stdout.write(
        f"Slurm {cluster.record.slurm_version} {did} in {cluster.folder} "
        f"({cluster.seconds:.1f} s)\n{_node_line(cluster.nodes)}\n"
        f'use it: eval "$(sbtrainctl cluster env{_folder_option(args.folder)})"\n'
    )
    if cluster.listens_beyond_loopback:
        sys.stderr.write(
            f"cluster: it listens beyond the loopback address, because {cluster.record.host} "
            f"does not stand for 127.0.0.1 in /etc/hosts; "
            f"requests without the cluster's key are refused\n"
        )
    return 0


def _down(args: argparse.Namespace) -> int:
    from sbtrain.cluster import down

    ended = down(args.folder, wipe=args.wipe, progress=_progress())
    if args.json:
        _write_json({"folder": args.folder.resolve(), "ended": ended})
    else:
        sys.stdout.write(f"ended {len(ended)} processes\n" if ended else "nothing ran\n")
    return 0


def _status(args: argparse.Namespace) -> int:
    from sbtrain.cluster import status

    found = status(args.folder)
    if args.json:
        _write_json(found)
    else:
        sys.stdout.write(_status_text(found, _folder_option(args.folder)))
    return 0 if found.state == "up" else 1


def _env(args: argparse.Namespace) -> int:
    from sbtrain.cluster import environment

    found = environment(args.folder)
    if args.json:
        _write_json(found)
    else:
        for name, value in found.items():
            sys.stdout.write(f"export {name}={shlex.quote(value)}\n")
    return 0


def _progress() -> Callable[[str], None]:
    begin = time.monotonic()

    def say(what: str) -> None:
        sys.stderr.write(f"cluster: {time.monotonic() - begin:4.1f} s  {what}\n")
        sys.stderr.flush()

    return say


def _status_text(found: Status, option: str) -> str:
    version = f"Slurm {found.record.slurm_version} " if found.record else ""
    lines = [f"{version}{found.state} in {found.folder}"]
    if found.problem:
        lines.append(f"problem: {found.problem}")
    if found.nodes:
        lines.append(_node_line(found.nodes))
    lines += [
        f"  {one.name:<12} pid {one.pid:<8} {'runs' if one.running else 'gone'}"
        for one in found.daemons
    ]
    lines += [f"  {one.name}: {one.reason}" for one in found.nodes if one.reason]
    if found.state != "up":
        lines.append(f"start or mend it: sbtrainctl cluster up{option}")
    return "\n".join(lines) + "\n"


def _node_line(nodes: tuple[NodeState, ...]) -> str:
    from sbtrain_jobs.hostlist import compress

    states: dict[str, list[str]] = {}
    for node in nodes:
        states.setdefault(node.state, []).append(node.name)
    return "; ".join(
        f"{len(names)} nodes {state} ({compress(names)})" for state, names in states.items()
    )


def _folder_option(folder: Path) -> str:
    return "" if folder == DEFAULT_FOLDER else f" --folder {shlex.quote(str(folder))}"


def _write_json(value: PrivateCluster | Status | dict[str, str] | dict[str, object]) -> None:
    from sbtrain_perf.codec import encode

    sys.stdout.write(json.dumps(encode(value), indent=2, default=str) + "\n")


def _count(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    if not 1 <= number <= 64:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 to 64")
    return number
