"""Staging against its bars: prints a table and writes build/bench-staging.json.

Every bar is a ratio within one run, so that it holds on a busy host as well. What needs an
emulated machine room (root, network namespaces) is skipped elsewhere, with the reason.
Times are those of the staging report: from the meeting of the ranks to the last published
copy, on the disk.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from staging_room import MPI_OVER_TCP, Room, machine_room, why_not
from staging_runs import LIMIT_S, MIB, SEED, Bench, make_file, make_tree, say, table

from sbtrain_jobs.process import end_session, run_command, start_process
from sbtrain_perf.errors import SbtrainError
from sbtrain_staging.engine.simulate import Rates, simulated_seconds
from sbtrain_staging.errors import StagingError
from sbtrain_staging.readers.reader import open_staged
from sbtrain_staging.reports.run_report import StagingReport

ROOT = Path(__file__).resolve().parents[1]
LINK_MBIT = 100
FAST_LINK_MBIT = 500


def bench_reads(bench: Bench) -> None:
    """Bytes read from the source, file and tree, 2 to 16 nodes; second attempts."""
    file = make_file(bench.work / "reads.h5", 48 * MIB)
    tree = make_tree(bench.work / "reads", 1000, 20_000)
    again = []
    for nodes in (2, 4, 8, 16):
        for source in (file, tree):
            bench.stage(nodes, str(source))
            again.append(bench.stage(nodes, str(source), keep=True).source_bytes_read)
    bench.add(
        "bytes read / data-set bytes, 2..16 nodes, file and tree",
        "naive: n",
        max(bench.read_ratios),
        most=1.01,
    )
    bench.add("bytes read by a second attempt on the same nodes", "all", max(again), most=0)


def bench_reuse(bench: Bench) -> None:
    """What it costs to hash a copy that is there already, against fetching it: CPU, which a
    busy host changes little, and time."""
    file = make_file(bench.work / "again.h5", bench.size(2048, 256) * MIB)
    tree = make_tree(bench.work / "again", bench.size(20_000, 2_000), 100_000)
    nothing = make_file(bench.work / "small.h5", 1000)
    bench.stage(1, str(nothing))
    fixed_s, _ = cpu_s(bench, nothing)
    for source, shown in ((file, "one file"), (tree, "files of 100 KB")):
        bench.fresh()
        first_s, first = cpu_s(bench, source)
        again_s, again = min(
            (cpu_s(bench, source) for _ in range(bench.size(5, 2))), key=lambda found: found[0]
        )
        gib = again.nodes[0].checked_bytes / 2**30
        bench.tell(
            f"hashing anew what is there, {gib:.2g} GiB in {shown}, CPU s / GiB",
            f"fetching it: {(first_s - fixed_s) / gib:.2f}",
            (again_s - fixed_s) / gib,
            note=f"{again.seconds} s in all, where fetching took {first.seconds} s",
        )
    bench.fresh()
    file.unlink()
    shutil.rmtree(tree)


def cpu_s(bench: Bench, source: Path) -> tuple[float, StagingReport]:
    """Stage to one node that keeps what it has: the CPU time of all processes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    report = bench.stage(1, str(source), keep=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, report


def bench_scaling(bench: Bench) -> None:
    """All nodes ready: 16 against 2 over limited links, and the naive copy."""
    what = "time to all nodes ready, 16 : 2 nodes, limited links"
    reason = why_not(with_server=True)
    if reason:
        bench.skip(what, "<= 1.15", reason)
        return
    shared = bench.work / "shared"
    make_file(shared / "data.h5", bench.size(160, 48) * MIB)
    make_file(shared / "small.h5", 6 * MIB)
    with machine_room(
        16, link_mbit=LINK_MBIT, server_mbit=LINK_MBIT, shared=shared, work=bench.work
    ) as room:
        seconds = {}
        for nodes in (2, 16):
            sent = room.server_sent_bytes()
            report = bench.stage(nodes, "{mount}/data.h5", room=room)
            seconds[nodes] = report.seconds
            ratio = (room.server_sent_bytes() - sent) / report.dataset_bytes
            say(f"{nodes} nodes: {report.seconds} s, {ratio:.4f} of the data left the server")
        naive = {nodes: naive_copy(bench, room, nodes) for nodes in (2, 16)}
        bench.add(
            what,
            f"naive copy: {naive[16] / naive[2]:.2f}",
            seconds[16] / seconds[2],
            most=1.15,
            note=f"{seconds[2]} s and {seconds[16]} s",
        )
        bench_prediction(bench, room, shared)


def naive_copy(bench: Bench, room: Room, nodes: int) -> float:
    """Every node copies for itself."""
    scratch = bench.fresh()
    started = time.monotonic()
    running = [
        start_process(
            [*room.inside(node), "cp", str(room.mounts[node] / "small.h5"), f"{scratch}/{node}"]
        )
        for node in range(nodes)
    ]
    for process in running:
        if process.wait(timeout=LIMIT_S) != 0:
            raise RuntimeError("a naive copy failed")
    return time.monotonic() - started


def bench_prediction(bench: Bench, room: Room, shared: Path) -> None:
    """The simulation, refitted on every second run, against the others; then larger rooms."""
    import numpy as np

    sizes = (8, 24, 64) if not bench.quick else (8, 24)
    runs = []
    for size_mib in sizes:
        make_file(shared / f"{size_mib}.h5", size_mib * MIB)
        for nodes in (2, 4, 8, 16):
            report = bench.stage(nodes, f"{{mount}}/{size_mib}.h5", room=room)
            runs.append((size_mib * MIB, nodes, report.seconds))
            say(f"{size_mib} MiB to {nodes} nodes: {report.seconds} s")
    nominal = Rates(
        source_bytes_per_s=room.link_bytes_per_s, link_bytes_per_s=room.link_bytes_per_s
    )
    facts = np.array([[1.0, n, simulated_seconds(size, n, nominal)] for size, n, _ in runs])
    measured = np.array([seconds for _, _, seconds in runs])
    fitted, *_ = np.linalg.lstsq(facts[::2], measured[::2], rcond=None)
    # Nodes 2 and 8 are in the first half, 4 and 16 in the other.
    errors = abs(facts[1::2] @ fitted - measured[1::2]) / measured[1::2]
    bench.add(
        "predicted against measured staging time, other half of the runs, MAPE %",
        "-",
        100 * float(errors.mean()),
        most=10,
        note=f"{len(errors)} runs predicted",
    )
    rates = Rates(
        source_bytes_per_s=room.link_bytes_per_s / fitted[2],
        link_bytes_per_s=room.link_bytes_per_s / fitted[2],
        start_s=max(0.0, float(fitted[0])),
        start_per_node_s=max(0.0, float(fitted[1])),
    )
    for nodes, most, size in ((64, 1.15, 4 << 30), (1024, 1.3, 4 << 30)):
        ratio = simulated_seconds(size, nodes, rates) / simulated_seconds(size, 2, rates)
        bench.add(
            f"the same by simulation, {nodes} : 2", "-", ratio, most=most,
            note=f"{size >> 30} GiB; {rates.start_per_node_s:.3g} s a node fitted here",
        )  # fmt: skip


def bench_link(bench: Bench) -> None:
    """One large file over one fast link."""
    what = "throughput of one link, one 2 GiB file / link rate"
    reason = why_not(with_server=False)
    if reason:
        bench.skip(what, ">= 0.9", reason)
        return
    file = make_file(bench.work / "large.h5", bench.size(2048, 256) * MIB)
    with machine_room(
        2, link_mbit=FAST_LINK_MBIT, server_mbit=FAST_LINK_MBIT, shared=None, work=bench.work
    ) as room:
        report = bench.stage(2, str(file), room=room)
        rate = report.dataset_bytes / report.seconds
        bench.add(what, f"{FAST_LINK_MBIT} Mbit/s", rate / room.link_bytes_per_s, least=0.9)
    file.unlink()


def others(source: Path) -> dict[str, str]:
    """The same job by other tools, into one node's folder $1, as lines for sh."""
    lines = {"cp": f"cp -r {source} $1/"}
    if shutil.which("rsync") is not None:
        lines["rsync"] = f"rsync -aW --inplace {source} $1/"
    if source.is_dir():
        lines["tar"] = f"tar -C {source.parent} -cf - {source.name} | tar -C $1 -xf -"
    return lines


def other_seconds(
    bench: Bench, source: Path, name: str, nodes: int, room: Room | None = None
) -> float:
    """All nodes at once by another tool, then flushed, as staging does."""
    scratch = bench.fresh()
    running = []
    started = time.monotonic()
    for node in range(nodes):
        folder = scratch / str(node)
        folder.mkdir()
        seen = source if room is None else room.mounts[node] / source.name
        inside = [] if room is None else room.inside(node)
        argv = [*inside, "sh", "-c", others(seen)[name], "sh", str(folder)]
        running.append(start_process(argv))
    for process in running:
        if process.wait(timeout=LIMIT_S) != 0:
            raise RuntimeError(f"{name} failed")
    run_command(["sync", "-f", str(scratch)], timeout_s=LIMIT_S)
    return time.monotonic() - started


def compare(
    bench: Bench, what: str, source: Path, *, least: float, room: Room | None = None
) -> None:
    """Four nodes by staging against the best of the others, in turns."""
    times: dict[str, list[float]] = {name: [] for name in ("staging", *others(source))}
    moved: list[float] = []
    share = "auto" if room is None else "never"
    seen = str(source) if room is None else f"{{mount}}/{source.name}"
    for _ in range(bench.size(3, 1)):
        times["staging"].append(bench.stage(4, seen, room=room, share=share).seconds)
        if room is None:
            moved.append(bench.stage(4, seen).seconds)
        for name in others(source):
            times[name].append(other_seconds(bench, source, name, 4, room))
    bench.fresh()
    middle = {name: statistics.median(found) for name, found in times.items()}
    best = min(others(source), key=middle.__getitem__)
    shown = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in middle.items())
    bench.add(what, f"best: {best}", middle[best] / middle["staging"], least=least, note=shown)
    if moved:
        seconds = statistics.median(moved)
        bench.tell(
            f"{what}, without links", f"best: {best}", middle[best] / seconds,
            note=f"staging {seconds:.2f} s",
        )  # fmt: skip


def bench_file(bench: Bench) -> None:
    file = make_file(bench.work / "one.h5", bench.size(1024, 128) * MIB)
    size = f"{file.stat().st_size >> 20:,} MiB"
    compare(bench, f"4 nodes on this host, one file of {size}, best / staging", file, least=1.0)


def bench_tree(bench: Bench) -> None:
    count = bench.size(20_000, 2_000)
    tree = make_tree(bench.work / "tree", count, 100_000)
    what = f"4 nodes on this host, {count:,} files of 100 KB, best / staging"
    compare(bench, what, tree, least=2.0)


def bench_shared(bench: Bench) -> None:
    """The same two where all nodes share one server's link, as on a cluster."""
    what = "4 emulated nodes, one shared server, {}, best / staging"
    reason = why_not(with_server=True)
    if reason:
        bench.skip(what.format("file"), ">= 1", reason)
        bench.skip(what.format("tree"), ">= 2", reason)
        return
    shared = bench.work / "served"
    file = make_file(shared / "one.h5", bench.size(128, 32) * MIB)
    tree = make_tree(shared / "tree", bench.size(400, 300), 100_000)
    with machine_room(
        4, link_mbit=200, server_mbit=200, shared=shared, work=bench.work
    ) as room:
        compare(
            bench, what.format(f"{file.stat().st_size >> 20} MiB"), file, least=1, room=room
        )
        files = sum(path.is_file() for path in tree.rglob("*"))
        compare(bench, what.format(f"{files} files of 100 KB"), tree, least=2, room=room)


def bench_overlap(bench: Bench) -> None:
    """When the first batch can be read, against when everything is there."""
    what = "first batch readable / full stage"
    reason = why_not(with_server=False)
    if reason:
        bench.skip(what, "<= 0.1", reason)
        return
    tree = make_tree(bench.work / "epoch", bench.size(2000, 600), 100_000)
    with machine_room(
        4, link_mbit=LINK_MBIT, server_mbit=LINK_MBIT, shared=None, work=bench.work
    ) as room:
        bench.fresh()
        extra = ("--order-seed", str(SEED), "--share", "never")
        argv = bench.argv(4, str(tree), room=room, extra=extra)
        process = start_process(argv, env={**os.environ, **MPI_OVER_TCP})
        try:
            data = open_staged(bench.scratch / "n4", tree)
            # The ranks have met by now; the report's clock began just before.
            opened = time.monotonic()
            batch = data.in_order(SEED)
            for _ in range(32):
                data.open(next(batch)).close()
            first_s = time.monotonic() - opened
            if process.wait(timeout=LIMIT_S) != 0:
                raise RuntimeError("staging failed")
            full_s = time.monotonic() - opened
        finally:
            end_session(process)
            process.wait()
    bench.add(what, "1", first_s / full_s, most=0.1, note=f"{first_s:.2f} s of {full_s:.2f} s")


def bench_kills(bench: Bench) -> None:
    """A few of the thousand kills of the slow tests."""
    asked = 5
    test = "tests/mpi/test_staging_kill.py"
    argv = [sys.executable, "-m", "pytest", "-q", "-m", "not slow", str(ROOT / test)]
    result = run_command(argv, timeout_s=LIMIT_S, cwd=ROOT, check="keep")
    bench.add(
        "kill -9 at random points, then rerun: verified trees, no stray file",
        f"{asked} kills; `make test-long` does 1,000",
        asked if result.returncode == 0 else 0,
        least=asked,
        note="" if result.returncode == 0 else result.stdout[-400:],
    )


def bench_memory(bench: Bench) -> None:
    tree = make_tree(bench.work / "many", bench.size(100_000, 20_000), 100)
    bench.stage(2, str(tree))
    bench.fresh()
    shutil.rmtree(tree)
    bench.add(
        "resident memory of a staging rank, all runs and 100,000 files, MiB",
        "-", max(bench.peaks) / MIB, most=256,
    )  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--quick", action="store_true", help="small data, one round")
    parser.add_argument("--only", action="append", default=[], help="name of a part")
    parser.add_argument("--work", type=Path, help="folder for data (default: temporary)")
    parser.add_argument("--scratch", type=Path, help="the nodes' disks (default: /dev/shm)")
    options = parser.parse_args(argv)
    memory = Path("/dev/shm")
    with (
        tempfile.TemporaryDirectory(dir=options.work, prefix="bench-staging-") as work,
        tempfile.TemporaryDirectory(dir=options.scratch or memory) as scratch,
    ):
        bench = Bench(work=Path(work), scratch=Path(scratch) / "nodes", quick=options.quick)
        parts: dict[str, Callable[[], None]] = {
            "reads": lambda: bench_reads(bench),
            "reuse": lambda: bench_reuse(bench),
            "link": lambda: bench_link(bench),
            "scaling": lambda: bench_scaling(bench),
            "file": lambda: bench_file(bench),
            "tree": lambda: bench_tree(bench),
            "shared": lambda: bench_shared(bench),
            "overlap": lambda: bench_overlap(bench),
            "memory": lambda: bench_memory(bench),
            "kills": lambda: bench_kills(bench),
        }  # fmt: skip
        for name, part in parts.items():
            if not options.only or name in options.only:
                say(name)
                try:
                    part()
                except (OSError, RuntimeError, SbtrainError, StagingError) as error:
                    bench.fail(name, str(error))
    print(table(bench.rows))
    (ROOT / "build").mkdir(exist_ok=True)
    (ROOT / "build" / "bench-staging.json").write_text(
        json.dumps([asdict(row) for row in bench.rows], indent=1) + "\n"
    )
    return 1 if any(row.met is False for row in bench.rows) else 0


if __name__ == "__main__":
    sys.exit(main())
