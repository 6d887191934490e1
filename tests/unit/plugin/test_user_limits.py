"""What the accounting allows one job of this user."""

from __future__ import annotations

import pytest

from sbtrain.slurm.command_client import CommandsClient
from sbtrain.slurm.user_limits import NO_LIMIT, NO_LIMITS, Limit, read_limits

USER = """\
team|||normal,small|small|node=3||
team||gpu|normal,small|small|cpu=64,gres/gpu=8|2-00:00:00|node=100
other|||normal|normal|||
several|||normal,small||||
single|||small||||
part|||normal||node=9||
"""
ACCOUNTS = """\
root||gres/gpu=40
lab|root|node=6
part|lab|cpu=90
circle|circle|node=1
"""
QOS = """\
normal|||||||00:00:00
small|gres/gpu=4,node=2|01:00:00|||||00:02:00
wide|node=50||cpu=400||||00:00:00
shared|node=8|||node=5,cpu=70|node=4,gres/gpu=1|small,wide|00:00:30
"""


@pytest.mark.parametrize(
    ("partition", "partition_qos", "account", "qos", "limit"),
    [
        ("main", "", "team", "", Limit(nodes=2, gpus=4, wall_s=3600)),
        ("main", "", "team", "normal", Limit(nodes=3)),
        ("main", "", "other", "", NO_LIMIT),
        ("main", "", "", "", NO_LIMIT),  # the account that allows most
        ("main", "wide", "", "", Limit(nodes=50, cpus=400)),
        ("gpu", "", "team", "normal", Limit(nodes=100, wall_s=None)),
        ("main", "", "team", "unheard", Limit(nodes=3)),
        ("main", "", "nobody", "", NO_LIMIT),
        ("main", "", "other", "shared", Limit(nodes=4, cpus=70, gpus=1)),
        ("main", "", "several", "", NO_LIMIT),  # Slurm takes normal
        ("main", "", "single", "", Limit(nodes=2, gpus=4, wall_s=3600)),
        ("main", "", "part", "", Limit(nodes=6, cpus=90, gpus=40)),
    ],
)
def test_the_tightest_of_association_qos_and_partition_binds(
    partition: str, partition_qos: str, account: str, qos: str, limit: Limit
) -> None:
    limits = read_limits(USER, ACCOUNTS, QOS)
    assert limits.of(partition, partition_qos, account=account, qos=qos) == limit


def test_what_cannot_be_read_limits_nothing() -> None:
    assert read_limits("", "", "") == NO_LIMITS
    assert read_limits("a|b\n", "c\n", "sacctmgr: error\n") == NO_LIMITS
    odd = read_limits("team|||||node=x|soon|\ncircle|||||||\n", ACCOUNTS, "")
    assert odd.of("main", "", account="team", qos="") == NO_LIMIT


def test_a_job_that_names_no_account_has_the_users_default() -> None:
    limits = read_limits(USER.replace("||", "|part|", 1), ACCOUNTS, QOS)
    assert limits.of("main", "", account="", qos="") == Limit(nodes=6, cpus=90, gpus=40)
    assert limits.of("main", "", account="other", qos="") == NO_LIMIT


@pytest.mark.parametrize(
    ("account", "qos", "graces"),
    [
        ("team", "", {120}),
        ("team", "wide", {0}),
        ("other", "", {None}),
        ("", "shared", {None}),
        ("single", "", {120}),
        ("", "", {120, None}),  # of several accounts any may be taken
        ("team", "unheard", set()),
        ("nobody", "", set()),
    ],
)
def test_a_job_is_pushed_aside_where_another_qos_says_so_of_its_own(
    account: str, qos: str, graces: set[int | None]
) -> None:
    limits = read_limits(USER, ACCOUNTS, QOS)
    assert limits.graces("main", account=account, qos=qos) == graces
    free = limits.unenforced()
    assert free.graces("main", account=account, qos=qos) == graces
    assert free.of("main", "wide", account=account, qos=qos) == NO_LIMIT


def test_whom_no_name_is_known_for_has_no_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.getuid", lambda: 987_654)
    assert CommandsClient(environ={}).limits("one") == NO_LIMITS
