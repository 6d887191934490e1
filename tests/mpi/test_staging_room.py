"""Staging over TCP between network namespaces with limited links; as root only."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from clusters import until
from mpi_environment import environment
from sbtrain_jobs.process import end_session, run_command, start_process
from sbtrain_staging.reports.run_report import read_report
from staging_trees import snapshot, write_file

pytestmark = pytest.mark.mpi
BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
LINK_MBIT = 50  # so slow that a busy host adds little
SIZE_BYTES = 16 << 20


@pytest.fixture
def staging_room(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import staging_room

    reason = staging_room.why_not(with_server=False)
    if reason:
        pytest.skip(reason)
    return staging_room


def namespaces() -> str:
    return run_command(["ip", "netns", "list"], timeout_s=30).stdout


def test_nodes_of_a_room_are_filled_at_the_rate_of_one_link(
    staging_room, nodes, tmp_path: Path
) -> None:
    file = write_file(tmp_path / "data.h5", SIZE_BYTES)
    with staging_room.machine_room(
        4, link_mbit=LINK_MBIT, server_mbit=LINK_MBIT, shared=None, work=tmp_path
    ) as room:
        inside = {
            rank: (*room.inside(rank), sys.executable, "-m", "sbtrain_staging")
            for rank in range(4)
        }
        arguments = nodes.run_arguments(file)
        programs = {rank: (*argv, *arguments) for rank, argv in inside.items()}
        argv = nodes.argv(4, arguments, programs=programs)
        run_command(argv, timeout_s=120, env={**environment(), **staging_room.MPI_OVER_TCP})
    report = read_report(nodes.report_path)
    assert report.source_bytes_read == SIZE_BYTES
    assert all(snapshot(Path(node.paths[0])) == snapshot(file) for node in report.nodes)
    # One after another would take three times this.
    link_s = SIZE_BYTES / room.link_bytes_per_s
    assert link_s < report.seconds < 2.5 * link_s
    assert room.prefix not in namespaces()


def test_a_room_whose_process_died_is_removed(staging_room, tmp_path: Path) -> None:
    code = (
        "import sys, time\nfrom pathlib import Path\nfrom staging_room import machine_room\n"
        "with machine_room(2, link_mbit=50, server_mbit=50, shared=None, work=Path('.')):\n"
        "    Path(sys.argv[1]).touch()\n    time.sleep(60)\n"
    )
    there = tmp_path / "there"
    environ = {**environment()}
    environ["PYTHONPATH"] = os.pathsep.join((str(BENCHMARKS), environ["PYTHONPATH"]))
    process = start_process([sys.executable, "-c", code, str(there)], env=environ)
    try:
        until("the room is made", there.exists, seconds=60)
        assert f"sbr{process.pid}n1" in namespaces()
    finally:
        end_session(process)
        process.wait()
    staging_room.clean_dead_rooms()
    assert f"sbr{process.pid}" not in namespaces()
    links = run_command(["ip", "-o", "link"], timeout_s=30).stdout
    assert f"sbr{process.pid}" not in links
