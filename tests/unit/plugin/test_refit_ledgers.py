"""`sbtrainctl refit` learns lifetimes from cause ledgers; `why` says what it learnt."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from commands import WITHOUT_SLURM, clean_environ, sbtrainctl
from sbtrain.commands.refit import _text
from sbtrain.runs.run_list import ListedRun, append_run
from sbtrain.sites.layers import load_site
from sbtrain_jobs.record.ledger import LOST_DETAIL, Ledger, LedgerEntry
from sbtrain_jobs.run_folder import RunFolder
from sbtrain_perf.codec import plan_to_json, read_plan
from sbtrain_perf.coefficients import load_coefficients
from sbtrain_perf.gate import GateResult
from sbtrain_perf.planner import plan_request
from sbtrain_perf.refit import RefitResult
from sbtrain_perf.request import Request
from sbtrain_perf.timing_log import TimingLog
from sbtrain_perf.wording import duration

BEGAN = datetime(2026, 11, 30, tzinfo=UTC)


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return clean_environ(PATH=WITHOUT_SLURM, SBTRAIN_HOME=str(tmp_path / "home"))


def run_of(
    place: Path,
    environ: dict[str, str],
    job_id: str,
    attempts: list[tuple[float, str]],
    *,
    partition: str = "spot",
) -> None:
    """A run whose attempts lived so many hours and ended of these causes; "lost": no end was
    written but by the next attempt, an hour later."""
    folder = place / f"digits-{job_id}"
    learnt = place / "home/coefficients.json"
    decision = plan_request(
        Request(
            script="train.py",
            workload="digits",
            partition=partition,
            steps=10**4,
            resumable=True,
        ),
        load_site("private", {}).shape,
        load_coefficients(learnt if learnt.exists() else None),
        run_id=folder.name,
        run_dir=str(folder),
    )
    assert decision.chosen is not None
    folder.mkdir()
    (folder / "plan.json").write_text(plan_to_json(decision.chosen))
    append_run(
        ListedRun(
            run_id=folder.name,
            job_id=job_id,
            run_dir=str(folder),
            workload="digits",
            submitted=BEGAN.isoformat(),
        ),
        environ,
    )
    ledger, now = Ledger(RunFolder(path=folder).ledger), BEGAN
    for attempt, (hours, cause) in enumerate(attempts):
        ledger.append(LedgerEntry(event="started", attempt=attempt, at=now.isoformat()))
        now += timedelta(hours=hours)
        if cause == "lost":
            ledger.append(
                LedgerEntry(
                    event="notice", attempt=attempt, at=now.isoformat(), cause="preempted"
                )
            )
            now += timedelta(hours=1)
        ledger.append(
            LedgerEntry(
                event="ended",
                attempt=attempt,
                at=now.isoformat(),
                cause="preempted" if cause == "lost" else cause,
                detail=LOST_DETAIL if cause == "lost" else "",
            )
        )


def test_ledgers_teach_when_a_partition_preempts(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    run_of(tmp_path, environ, "1", [(2.0, "preempted"), (3.0, "lost"), (1.0, "completed")])
    run_of(tmp_path, environ, "2", [(1.0, "preempted"), (2.5, "node-fail"), (4.0, "failed")])
    done = sbtrainctl("refit", "--json", cwd=tmp_path, environ=environ)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["refused"] == []
    (law,) = load_coefficients(tmp_path / "home/coefficients.json").learnt.lifetimes
    assert (law.partition, law.attempts, law.ended) == ("spot", 6, 3)
    stated_s = 3600.0  # by the private site
    # The lost attempt is 3 h old, not 4: (2 stated + 13.5 h lived) / (2 + 3 preempted).
    edge_s = (2 * stated_s + 13.5 * 3600) / 5 / 32
    assert edge_s == pytest.approx(law.edges_s[0], rel=1e-9)

    run_of(tmp_path, environ, "3", [])
    said = sbtrainctl("why", "3", cwd=tmp_path, environ=environ)
    assert said.returncode == 0, said.stderr
    (line,) = [one for one in said.stdout.splitlines() if one.startswith("preempted after")]
    assert "on average here (2 runs, 3 of 6 attempts ended so), interval" in line

    back = sbtrainctl("refit", "--rollback", cwd=tmp_path, environ=environ)
    assert back.returncode == 0, back.stderr
    again = sbtrainctl("refit", "--dry-run", cwd=tmp_path, environ=environ)
    assert again.returncode == 0, again.stderr


def test_a_torn_ledger_and_a_clock_that_ran_back_are_no_lifetimes(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    run_of(tmp_path, environ, "1", [(2.0, "preempted"), (-3.0, "preempted")])
    with (tmp_path / "digits-1/ledger.jsonl").open("a") as file:
        file.write('{"event": "ended", "attempt": 1, "at": "2026-')
    done = sbtrainctl("refit", cwd=tmp_path, environ=environ)
    assert done.returncode == 0, done.stderr
    assert "refused: lifetime of digits-1, attempt 1: an attempt of -1.08e+04 s" in done.stdout
    (law,) = load_coefficients(tmp_path / "home/coefficients.json").learnt.lifetimes
    assert (law.attempts, law.ended) == (1, 1)


def test_what_was_learnt_without_timings_is_said(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    """An attempt whose trainers never met leaves a log with no measurement in it."""
    run_of(tmp_path, environ, "1", [(1.0, "preempted"), (2.0, "launch-failed")])
    empty_log(tmp_path / "digits-1")
    first = sbtrainctl("refit", cwd=tmp_path, environ=environ)
    assert first.returncode == 0, first.stderr
    none, said, *written = first.stdout.splitlines()
    assert none == "no timing was learnt from 1 timing log"
    (law,) = load_coefficients(tmp_path / "home/coefficients.json").learnt.lifetimes
    assert said == (
        f"lifetimes of spot on private: {duration(law.mean_s)} on average "
        "(1 run, 1 of 2 attempts preempted)"
    )
    assert "; generation 1 written to " in " ".join(written)

    again = sbtrainctl("refit", cwd=tmp_path, environ=environ)
    assert again.stdout.splitlines() == [none, "nothing new to learn in 1 timing log"]
    run_of(tmp_path, environ, "2", [(1.0, "preempted")])
    third = sbtrainctl("refit", "--json", cwd=tmp_path, environ=environ)
    (learnt,) = json.loads(third.stdout)["lifetimes"]
    assert (learnt["partition"], learnt["attempts"], learnt["ended"]) == ("spot", 3, 2)


def test_where_nothing_at_all_was_learnt_nothing_is_written(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    run_of(tmp_path, environ, "1", [(0.01, "launch-failed")], partition="standard")
    empty_log(tmp_path / "digits-1")
    said = sbtrainctl("refit", cwd=tmp_path, environ=environ)
    assert (said.returncode, said.stderr) == (0, "")
    assert said.stdout.splitlines() == [
        "no timing was learnt from 1 timing log",
        "nothing new to learn in 1 timing log",
    ]
    assert not (tmp_path / "home/coefficients.json").exists()


def empty_log(folder: Path) -> None:
    path = folder / "attempts/0/timings.h5"
    path.parent.mkdir(parents=True)
    with TimingLog.create(path, plan=read_plan(folder / "plan.json"), attempt=0):
        pass


def test_what_is_not_promoted_is_said_in_the_measure_that_judged_it() -> None:
    """Of lifetimes a Brier score; else a mean logarithm, as the error that it stands for."""
    step = GateResult(key=("step", "c"), runs=4, before=0.1, after=math.log(3), tolerance=0.1)
    law = GateResult(key=("lifetime", "c"), runs=1, before=0.02, after=0.05, tolerance=0.0)
    result = RefitResult(
        coefficients=load_coefficients(), errors=(), refused=(), verdicts=(step, law)
    )
    said = " ".join(_text(result, (), 4, None, False).split())
    assert "step c: error on left-out runs would rise from 11% to 200% (4 runs)" in said
    assert "lifetime c: the Brier score on left-out runs would rise from 0.020 to 0.050" in said
