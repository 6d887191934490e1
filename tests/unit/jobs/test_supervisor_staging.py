"""A staging step that dies, under the real supervisor and the real staging of one rank."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from counting_trainer import TRAIN
from sbtrain_perf.request import DataSet, Role
from sbtrain_staging.commandline import hint_for
from sbtrain_staging.errors import ScratchError, SourceError
from supervised_runs import SupervisedRun, supervised_run


@pytest.fixture
def run(tmp_path: Path) -> Iterator[SupervisedRun]:
    data = tmp_path / "rows"
    data.write_bytes(os.urandom(1000))
    (tmp_path / "scratch").mkdir()
    made = supervised_run(
        tmp_path,
        TRAIN,
        steps=3,
        nodes=1,
        workers=1,
        roles=(Role(name="worker", index=0, node=0),),
        data=DataSet(paths=(str(data),), total_bytes=1000),
        scratch_path=str(tmp_path / "scratch" / "%n"),
    )
    yield made
    made.stop()


def test_a_staging_rank_that_dies_is_not_the_end(run: SupervisedRun) -> None:
    run.environ["FAKE_SRUN_STAGE_DIES"] = "1"
    run.start()
    assert run.wait() == 0, run.output
    assert "a rank died; once more" in run.output
    assert run.last("ended").cause == "completed"


def test_a_second_death_of_staging_is(run: SupervisedRun) -> None:
    run.environ["FAKE_SRUN_STAGE_DIES"] = "2"
    run.start()
    assert run.wait() == 137, run.output
    assert run.output.count("a rank died; once more") == 1
    assert "staging ended with exit status 137" in run.output
    assert run.requeues == []


def test_what_staging_itself_says_is_not_tried_again(run: SupervisedRun) -> None:
    Path(run.plan.data.paths[0]).unlink()
    run.start()
    assert run.wait() == SourceError.exit_code, run.output
    assert "once more" not in run.output


def test_hints_name_what_a_user_of_sbtrain_has() -> None:
    full = ScratchError("cannot write /s/c7 on node c7: No space left", hint="give --to more")
    assert hint_for(full, {}) == "give --to more"
    told = hint_for(full, {"SBTRAIN_ATTEMPT": "0"})
    assert "--exclude=c7" in told
    assert "--to" not in told
    source = SourceError("x is gone", hint="look")
    assert hint_for(source, {"SBTRAIN_ATTEMPT": "0"}) == "look"
