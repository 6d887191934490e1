"""The accuracy benchmark shows the planner's own error: rows replayed as runs of sbtrain."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest
from attempts import synchronous_s

ROOT = Path(__file__).resolve().parents[3]
DATA = ROOT.parent / "shared" / "data"


def module(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module(name)


def test_a_replay_learns_what_it_is_shown_and_of_no_other_workload(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A step that the shipped coefficients know nothing of, seen on 1 to 4 nodes."""
    replay = module("accuracy_checks.replay", monkeypatch)

    def where(nodes: int, workload: str = "seen") -> object:
        return replay.Setting(workload=workload, gpu="K80", nodes=nodes, parameters=10**6)

    def truth_s(nodes: int) -> float:
        return synchronous_s(2.0, 0.5, 1e-4, nodes=nodes)

    cluster = replay.Replay([("K80", 1)])
    runs = [replay.Run(setting=where(n), step_s=truth_s(n)) for n in (1, 2, 4)]
    learnt = cluster.learnt(runs)
    (seen,) = cluster.steps([(where(8), truth_s(8))], learnt)
    (cold,) = cluster.steps([(where(8), truth_s(8))], replay.SHIPPED)
    assert seen.ape < 10.0 < cold.ape
    assert seen.covered
    (other,) = cluster.steps([(where(8, "other"), 1.0)], learnt)
    (before,) = cluster.steps([(where(8, "other"), 1.0)], replay.SHIPPED)
    assert other.predicted == before.predicted
    assert cluster.learnt([]) is replay.SHIPPED


def test_saves_are_learnt_for_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    replay = module("accuracy_checks.replay", monkeypatch)
    cluster = replay.Replay([("K80", 1)])

    def run(name: str, parameters: int) -> object:
        setting = replay.Setting(workload=name, gpu="K80", parameters=parameters)
        size = 8.5 * parameters
        return replay.Run(setting=setting, saves=((2.0 + 1e-8 * size, size),) * 3)

    learnt = cluster.learnt([run("a", 10**6), run("b", 10**7), run("c", 5 * 10**7)])
    asked = run("new", 2 * 10**7)
    found = cluster.planned(asked.setting, learnt).prediction.checkpoint_s
    assert found == pytest.approx(asked.saves[0][0], rel=0.1)


def test_the_table_has_a_column_for_each_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    checking = module("accuracy_checks.checking", monkeypatch)
    accuracy = module("accuracy", monkeypatch)
    both = checking.Check(
        what="both",
        value=3.14,
        bar=5.0,
        n=15,
        planner=checking.Planner(value=7.29, coverage90=0.93, n=12, note="so far"),
    )
    own = checking.Check(what="own", value=None, planner=checking.Planner(value=9.2, n=4), n=4)
    none = checking.Check(what="none", value=1.0, planner=checking.Planner(note="cannot be"))
    head, _, *rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in accuracy.table([both, own, none]).splitlines()
    ]
    assert head[3:] == [
        *("scorer", "bar", "in 90 %", "met", "planner", "in 90 %", "of the planner")
    ]
    assert rows[0][3:] == ["3.1", "<= 5", "-", "yes", "7.3", "93", "12 rows; so far"]
    assert rows[1][3:] == ["-", "-", "-", "-", "9.2", "-", "-"]
    assert rows[2][7:] == ["-", "-", "cannot be"]
    unmet = checking.Check(what="x", value=None, bar=1.0, planner=checking.Planner(value=0.5))
    assert not unmet.met  # a bar is asked of the scorer


@pytest.mark.skipif(not (DATA / "cmdare").is_dir(), reason="no shared data beside the checkout")
def test_the_planners_own_choices_are_as_documented(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks = module("accuracy_checks.regret", monkeypatch).checks(DATA, tmp_path)
    assert all(one.planner.value is not None or one.planner.note for one in checks)
    text = " ".join((ROOT / "docs/accuracy.md").read_text().split())
    for check in checks:
        assert f"{check.planner.value:.1f} %" in text, check.what
