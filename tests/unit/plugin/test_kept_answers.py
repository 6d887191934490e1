"""What Slurm was asked lately is not asked again."""

from __future__ import annotations

import dataclasses
import json
import os
import stat
from collections import Counter
from pathlib import Path

import pytest

from fake_slurm import FakeSlurm
from fake_slurm_cluster import fake_node
from sbtrain.errors import SlurmTimeoutError
from sbtrain.slurm.client import Gres, NodeInfo, PartitionInfo, QueuedJob
from sbtrain.slurm.cluster_config import ClusterConfig
from sbtrain.slurm.kept_answers import (
    AGAIN_S,
    PARTITIONS_S,
    QUEUE_S,
    STATE_S,
    KeptAnswers,
)
from sbtrain.slurm.user_limits import NO_LIMITS, UserLimits


class Counting(FakeSlurm):
    def __init__(self, *nodes: NodeInfo) -> None:
        super().__init__(nodes=nodes or None)
        self.asked = Counter[str]()

    def partitions(self) -> tuple[PartitionInfo, ...]:
        self.asked["partitions"] += 1
        return super().partitions()

    def nodes(self) -> tuple[NodeInfo, ...]:
        self.asked["nodes"] += 1
        return super().nodes()

    def queue(self) -> tuple[QueuedJob, ...]:
        self.asked["queue"] += 1
        return super().queue()

    def config(self) -> ClusterConfig:
        self.asked["config"] += 1
        return super().config()

    def limits(self, cluster: str) -> UserLimits:
        self.asked["limits"] += 1
        return super().limits(cluster)


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "slurm.conf").write_text("ClusterName=one\n")
    return {
        "SBTRAIN_HOME": str(tmp_path / "home"),
        "SLURM_CONF": str(tmp_path / "slurm.conf"),
    }


def ask(slurm: FakeSlurm, environ: dict[str, str], *, at_s: float = 1e6) -> KeptAnswers:
    """One call of the program."""
    answers = KeptAnswers(slurm, environ, now=lambda: at_s)
    answers.partitions()
    answers.nodes()
    answers.queue()
    return answers


def test_a_second_call_asks_about_the_queue_alone(environ: dict[str, str]) -> None:
    slurm = Counting()
    first = ask(slurm, environ)
    second = ask(slurm, environ, at_s=1e6 + QUEUE_S)
    assert slurm.asked == {"partitions": 1, "nodes": 1, "queue": 2}
    assert second.partitions() == first.partitions()
    assert second.nodes() == first.nodes()


@pytest.mark.parametrize(
    ("after_s", "again"),
    [
        (QUEUE_S - 1, set[str]()),
        (STATE_S - 1, {"queue"}),
        (STATE_S, {"queue", "nodes"}),
        (PARTITIONS_S, {"queue", "nodes", "partitions"}),
        (-60.0, {"queue", "nodes", "partitions"}),  # a clock that was set back
    ],
)
def test_answers_age(after_s: float, again: set[str], environ: dict[str, str]) -> None:
    slurm = Counting()
    ask(slurm, environ)
    slurm.asked.clear()
    ask(slurm, environ, at_s=1e6 + after_s)
    assert set(slurm.asked) == again


def test_a_changed_configuration_makes_all_of_it_old(environ: dict[str, str]) -> None:
    slurm = Counting()
    ask(slurm, environ)
    Path(environ["SLURM_CONF"]).write_text("ClusterName=one\nNodeName=c9\n")
    ask(slurm, environ)
    assert slurm.asked == {"partitions": 2, "nodes": 2, "queue": 2}


def test_a_file_that_slurm_conf_includes_counts_as_it_does(
    environ: dict[str, str], tmp_path: Path
) -> None:
    Path(environ["SLURM_CONF"]).write_text("ClusterName=one\nInclude parts.conf\n")
    (tmp_path / "parts.conf").write_text("PartitionName=main\n")
    slurm = Counting()
    ask(slurm, environ)
    ask(slurm, environ)
    assert slurm.asked["partitions"] == 1
    (tmp_path / "parts.conf").write_text("PartitionName=main State=DOWN\n")
    ask(slurm, environ)
    assert slurm.asked["partitions"] == 2


def test_without_a_file_to_look_at_nothing_is_kept_for_long(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sbtrain.slurm.kept_answers._PLACES", ("/no/slurm.conf",))
    slurm = Counting()
    environ.pop("SLURM_CONF")
    ask(slurm, environ)
    ask(slurm, environ, at_s=1e6 + 60)
    assert slurm.asked["partitions"] == 1
    ask(slurm, environ | {"SLURM_CONF_SERVER": "elsewhere"}, at_s=1e6 + 60)
    assert slurm.asked["partitions"] == 2
    ask(slurm, environ, at_s=1e6 + 600)
    assert slurm.asked["partitions"] == 3


def test_an_accounting_that_is_silent_is_left_alone_for_minutes(
    environ: dict[str, str],
) -> None:
    Path(environ["SLURM_CONF"]).write_text(
        "AccountingStorageType=accounting_storage/slurmdbd\nAccountingStorageEnforce=limits\n"
    )
    slurm = Counting()
    slurm.fail_next("limits", SlurmTimeoutError("no answer"))
    for at_s, times in ((0, 1), (30, 1), (3600, 2), (7200, 2)):
        answers = KeptAnswers(slurm, environ, now=lambda at_s=at_s: 1e6 + at_s)
        assert answers.limits() == NO_LIMITS
        assert slurm.asked["limits"] == times


def test_each_cluster_has_its_own(environ: dict[str, str], tmp_path: Path) -> None:
    slurm = Counting()
    ask(slurm, environ)
    (tmp_path / "other.conf").write_text("ClusterName=two\n")
    ask(slurm, environ | {"SLURM_CONF": str(tmp_path / "other.conf")})
    ask(slurm, environ)
    assert slurm.asked == {"partitions": 2, "nodes": 2, "queue": 2}


def test_doubted_nodes_are_asked_about_again_though_not_all_the_time(
    environ: dict[str, str],
) -> None:
    slurm = Counting()
    ask(slurm, environ)
    for at_s, times in ((AGAIN_S - 1, 1), (AGAIN_S, 2), (AGAIN_S + 9, 2)):
        KeptAnswers(slurm, environ, now=lambda at_s=at_s: 1e6 + at_s).nodes(most_s=AGAIN_S)
        assert slurm.asked["nodes"] == times


def test_it_is_the_users_alone(environ: dict[str, str]) -> None:
    ask(Counting(), environ)
    (kept,) = Path(environ["SBTRAIN_HOME"]).iterdir()
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600


def test_what_is_kept_and_tells_of_no_node_is_asked_anew(environ: dict[str, str]) -> None:
    slurm = Counting()
    ask(slurm, environ)
    (kept,) = Path(environ["SBTRAIN_HOME"]).iterdir()
    said = json.loads(kept.read_text())
    said["nodes"]["kinds"] = []
    kept.write_text(json.dumps(said))
    assert ask(slurm, environ).nodes().kinds


@pytest.mark.parametrize("text", ["", "{", "[]", '{"conf": 3}', "[" * 100_000])
def test_what_cannot_be_read_is_asked_anew(text: str, environ: dict[str, str]) -> None:
    slurm = Counting()
    ask(slurm, environ)
    (kept,) = Path(environ["SBTRAIN_HOME"]).iterdir()
    kept.write_text(text)
    ask(slurm, environ)
    assert slurm.asked == {"partitions": 2, "nodes": 2, "queue": 2}


def test_a_home_that_takes_nothing_is_no_obstacle(
    environ: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    slurm = Counting()
    answers = ask(slurm, environ | {"SBTRAIN_HOME": str(tmp_path / "file" / "home")})
    answers.partitions()
    assert slurm.asked["partitions"] == 1  # within one call it is remembered all the same


def test_a_silent_slurm_leaves_what_was_kept(environ: dict[str, str]) -> None:
    slurm = Counting()
    ask(slurm, environ)
    slurm.fail_next("queue", SlurmTimeoutError("no answer"))
    with pytest.raises(SlurmTimeoutError):
        ask(slurm, environ, at_s=1e6 + 60)
    assert ask(slurm, environ, at_s=1e6 + 61).partitions() == slurm.partitions()


def test_nodes_by_what_they_have_and_whether_they_run_jobs(environ: dict[str, str]) -> None:
    down = dataclasses.replace(fake_node("c2"), states=frozenset({"DOWN"}))
    fast = dataclasses.replace(fake_node("c3"), features=("fast", "ib"))
    nodes = KeptAnswers(Counting(down, fast, fake_node("g1", gpus=2)), environ).nodes()
    assert nodes.unusable == "c2"
    assert nodes.by_feature == {"fast": "c3", "ib": "c3"}
    assert nodes.with_gres(Gres(name="gpu", kind="k80", count=2)) == ["g1"]
    assert nodes.with_gres(Gres(name="gpu", kind="", count=3)) == []
    assert nodes.with_gres(Gres(name="gpu", kind="v100", count=1)) is None


def test_a_configuration_that_is_gone_is_no_obstacle(environ: dict[str, str]) -> None:
    os.unlink(environ["SLURM_CONF"])  # noqa: PTH108
    ask(Counting(), environ)
