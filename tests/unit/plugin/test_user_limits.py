"""What the accounting allows one job of this user."""

from __future__ import annotations

import pytest

from sbtrain.slurm.user_limits import NO_LIMIT, NO_LIMITS, Limit, read_limits

ASSOCIATIONS = """\
team||normal,small|small|node=3||
team|gpu|normal,small|small|cpu=64,gres/gpu=8|2-00:00:00|node=100
other||normal|normal|||
"""
QOS = """\
normal|||
small|gres/gpu=4,node=2|01:00:00|
wide|node=50||cpu=400
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
    ],
)
def test_the_tightest_of_association_qos_and_partition_binds(
    partition: str, partition_qos: str, account: str, qos: str, limit: Limit
) -> None:
    limits = read_limits(ASSOCIATIONS, QOS)
    assert limits.of(partition, partition_qos, account=account, qos=qos) == limit


def test_what_cannot_be_read_limits_nothing() -> None:
    assert read_limits("", "") == NO_LIMITS
    assert read_limits("a|b\n", "sacctmgr: error\n") == NO_LIMITS
    odd = read_limits("team||||node=x|soon|\n", "")
    assert odd.of("main", "", account="team", qos="") == NO_LIMIT
