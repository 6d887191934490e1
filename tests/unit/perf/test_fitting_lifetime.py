"""Learning lifetimes: conjugate counts, censoring, priors from other partitions, and scores."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sbtrain_perf.fitting.lifetime import (
    CMDARE_PRIOR,
    EndedByHour,
    constant_belief,
    count_lifetimes,
    fit_prior,
    learn_lifetime,
)
from sbtrain_perf.fitting.lifetime_paths import draw_alive
from sbtrain_perf.models.lifetime import Lifetime
from sbtrain_perf.score.__main__ import main
from sbtrain_perf.score.cmdare_lifetime import score

HOUR = 3600.0
EDGES = tuple(HOUR * hour for hour in range(1, 25))
TRUE = Lifetime(edges_s=(HOUR,), hazards_1_s=(0.5 / HOUR, 0.02 / HOUR), cap_s=24 * HOUR)
COLUMNS = "gpu,region,hour,cdf_lifetime,n_ended_by_hour,n_servers\n"


def lived(law: Lifetime, servers: int, seed: int) -> np.ndarray:
    return law.ages_s(np.random.default_rng(seed).random(servers))


def by_hour(law: Lifetime, region: str, seed: int, *, servers: int = 30) -> EndedByHour:
    ages = lived(law, servers, seed)
    hours = tuple(range(1, 25))
    return EndedByHour(
        gpu="K80",
        region=region,
        servers=servers,
        hours=hours,
        ended=tuple(int((ages < HOUR * hour).sum()) for hour in hours),
    )


def write(folder: Path, groups: list[EndedByHour], *, keep: set[int] | None = None) -> Path:
    target = folder / "cmdare" / "lifetime_cdf.csv"
    target.parent.mkdir(parents=True)
    lines = [
        f"{g.gpu},{g.region},{hour},{ended / g.servers:.9g},{ended},{g.servers}\n"
        for g in groups
        for hour, ended in [*zip(g.hours, g.ended, strict=True), (25, g.servers)]
        if keep is None or hour in keep
    ]
    target.write_text(COLUMNS + "".join(lines))
    return folder


def test_counts_hold_deaths_and_fractions_of_censored_bins() -> None:
    counts = count_lifetimes(
        (HOUR, 2 * HOUR, 4 * HOUR),
        (0.5 * HOUR, 1.5 * HOUR, 3 * HOUR, 9 * HOUR),
        ended=(True, False, True, True),
    )
    assert counts.deaths == (1.0, 0.0, 1.0)
    assert counts.survived == (3.0, 2.5, 1.0)
    assert counts.added(counts).deaths == (2.0, 0.0, 2.0)


def test_the_cap_is_no_death() -> None:
    counts = count_lifetimes(EDGES, (24 * HOUR,), ended=(True,), cap_s=24 * HOUR)
    assert sum(counts.deaths) == 0.0
    assert counts.survived == (1.0,) * 24


@pytest.mark.parametrize("age", [-1.0, math.nan, math.inf])
def test_impossible_ages_are_refused(age: float) -> None:
    with pytest.raises(ValueError, match="lifetimes"):
        count_lifetimes(EDGES, (age,), ended=(True,))


@settings(max_examples=25, deadline=None)
@given(
    ages_h=st.lists(st.floats(0.0, 30.0), min_size=1, max_size=12),
    ends=st.lists(st.booleans(), min_size=12, max_size=12),
)
def test_one_by_one_is_the_same_as_all_at_once(ages_h: list[float], ends: list[bool]) -> None:
    start = CMDARE_PRIOR.belief()
    ages = [HOUR * age for age in ages_h]
    together = start.observe(ages, ended=ends[: len(ages)])
    stepwise = start
    for age, ended in zip(ages, ends, strict=False):
        stepwise = stepwise.observe([age], ended=[ended])
    assert stepwise.survival() == pytest.approx(together.survival(), rel=1e-9)


def test_many_lifetimes_outweigh_the_prior() -> None:
    start = CMDARE_PRIOR.belief()
    after = start.observe(lived(TRUE, 3000, 1).tolist(), ended=[True] * 3000)
    ages = np.array(EDGES)
    assert after.predictive().survival(ages) == pytest.approx(TRUE.survival(ages), abs=0.03)
    assert np.abs(start.predictive().survival(ages) - TRUE.survival(ages)).max() > 0.06


def test_censored_lifetimes_do_not_bend_the_hazard() -> None:
    """Half the servers are taken away at 3 hours: the early hazard is still found."""
    ages = lived(TRUE, 4000, 2)
    ended = ages < np.where(np.arange(4000) % 2, 3 * HOUR, math.inf)
    seen = np.where(ended, ages, 3 * HOUR)
    naive = CMDARE_PRIOR.belief().observe(seen.tolist(), ended=[True] * 4000)
    right = CMDARE_PRIOR.belief().observe(seen.tolist(), ended=ended.tolist())
    at = np.array(EDGES[:12])
    assert right.predictive().survival(at) == pytest.approx(TRUE.survival(at), abs=0.03)
    assert np.abs(naive.predictive().survival(at) - TRUE.survival(at)).max() > 0.1


def test_several_servers_share_what_is_unknown_of_them() -> None:
    """Four of one unknown law outlive more often than four of its mean, independently."""
    belief = CMDARE_PRIOR.belief()
    assert (belief.survival(servers=4) > belief.survival() ** 4).all()
    sure = belief.observe(lived(TRUE, 5000, 3).tolist(), ended=[True] * 5000)
    assert sure.survival(servers=4) == pytest.approx(sure.survival() ** 4, rel=0.03)


def test_a_stated_mean_is_believed_until_runs_say_otherwise() -> None:
    edges = tuple(600.0 * 2**i for i in range(8))
    belief = constant_belief(7200.0, edges_s=edges)
    alive = belief.predictive().survival(7200.0)
    assert float(alive) == pytest.approx(math.exp(-1.0), abs=0.12)
    short = belief.observe([300.0] * 20, ended=[True] * 20)
    assert float(short.predictive().survival(600.0)) < 0.3 < float(alive)


def test_one_call_learns_a_partition_at_any_scale() -> None:
    """The same law a hundred times faster than the site believes."""
    fast = Lifetime(edges_s=(60.0,), hazards_1_s=(1 / 120.0, 1 / 3000.0))
    ages = fast.ages_s(np.random.default_rng(3).random(400))
    seen = np.minimum(ages, 2000.0)
    law = learn_lifetime(3600.0, seen.tolist(), ended=(ages < 2000.0).tolist())
    at = np.array([120.0, 225.0, 450.0, 900.0, 1800.0])
    assert law.survival(at) == pytest.approx(fast.survival(at), abs=0.06)
    assert float(learn_lifetime(3600.0, (), ended=()).survival(3600.0)) == pytest.approx(
        math.exp(-1.0), abs=0.12
    )


def test_the_prior_learns_the_shape_of_other_partitions() -> None:
    groups = [by_hour(TRUE, f"r{i}", i) for i in range(8)]
    prior = fit_prior(groups, gpu="K80")
    assert prior.first_share == pytest.approx(1 - math.exp(-0.5), abs=0.1)
    survival = prior.belief().survival()
    assert survival == pytest.approx(TRUE.survival(np.array(EDGES) - 1.0), abs=0.1)
    calm = [by_hour(Lifetime.exponential(0.01 / HOUR), f"r{i}", i) for i in range(8)]
    assert fit_prior(calm, gpu="K80").belief().survival()[0] > survival[0] + 0.2


def test_known_hours_are_kept_and_the_rest_drawn_between() -> None:
    whole = by_hour(TRUE, "r", 4)
    part = EndedByHour(
        gpu="K80",
        region="r",
        servers=30,
        hours=whole.hours[1:12:5],
        ended=whole.ended[1:12:5],
    )
    alive = draw_alive(CMDARE_PRIOR.belief(), part, np.random.default_rng(0), draws=300)
    for hour, ended in zip(part.hours, part.ended, strict=True):
        assert (alive[:, hour - 1] == 30 - ended).all()
    assert (np.diff(alive, axis=1) <= 0).all()
    assert alive[:, 0].std() > 0.0  # between two known hours
    assert alive[:, 23].std() > alive[:, 12].std()  # further beyond the last


def test_intervals_cover_regions_that_were_not_fitted() -> None:
    generator = np.random.default_rng(11)
    inside = []
    for at in range(8):
        laws = [
            Lifetime(
                edges_s=(HOUR,),
                hazards_1_s=(
                    generator.gamma(2.0, 0.2) / HOUR,
                    generator.gamma(3.0, 0.01) / HOUR,
                ),
            )
            for _ in range(9)
        ]
        groups = [by_hour(law, f"r{i}", 100 * at + i) for i, law in enumerate(laws)]
        unseen = EndedByHour(gpu="K80", region="new", servers=30)
        alive = draw_alive(
            fit_prior(groups[1:], gpu="K80").belief(),
            unseen,
            np.random.default_rng(at),
            draws=500,
        )
        low, high = np.quantile(alive, [0.05, 0.95], axis=0)
        truth = 30 - np.array(groups[0].ended)
        inside.append(((low <= truth) & (truth <= high)).mean())
    assert 0.75 <= np.mean(inside) <= 1.0


def test_scores_have_briers_and_ours_beats_the_exponential(tmp_path: Path) -> None:
    groups = [by_hour(TRUE, f"r{i}", 50 + i) for i in range(6)]
    fit, held = write(tmp_path / "fit", groups[1:]), write(tmp_path / "held", groups[:1])
    found = {row.model: row for row in score(fit, held)}
    assert set(found) == {"ours", "exponential", "kaplan-meier of its GPU"}
    assert {row.group for row in found.values()} == {"K80/r0"}
    assert {row.n for row in found.values()} == {25}
    ours, theirs = found["ours"].brier, found["exponential"].brier
    assert ours is not None
    assert theirs is not None
    assert ours < theirs
    assert found["ours"].mape is None


def test_missing_hours_of_a_known_region_lie_between_its_neighbours(tmp_path: Path) -> None:
    groups = [by_hour(TRUE, f"r{i}", 70 + i) for i in range(4)]
    fit = write(tmp_path / "fit", groups, keep={1, 5, 9, 20})
    held = write(tmp_path / "held", groups, keep={3, 7, 15, 24, 25})
    rows = score(fit, held)
    ours = [row for row in rows if row.model == "ours"]
    gpus = [row for row in rows if row.model == "kaplan-meier of its GPU"]
    assert [row.n for row in ours] == [5] * 4
    assert sum(row.brier or 0.0 for row in ours) < sum(row.brier or 0.0 for row in gpus)


def test_the_scored_survival_is_not_read(tmp_path: Path) -> None:
    groups = [by_hour(TRUE, f"r{i}", 90 + i) for i in range(3)]
    fit = write(tmp_path / "fit", groups[1:])
    held = write(tmp_path / "held", groups[:1])
    lie = EndedByHour(
        gpu="K80", region="r0", servers=30, hours=groups[0].hours, ended=(0,) * 24
    )
    other = write(tmp_path / "other", [lie])
    widths = [
        [row.mean_width for row in score(fit, folder) if row.model == "ours"]
        for folder in (held, other)
    ]
    assert widths[0] == widths[1]


def test_the_command_prints_briers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    groups = [by_hour(TRUE, f"r{i}", i) for i in range(3)]
    fit, held = write(tmp_path / "fit", groups[1:]), write(tmp_path / "held", groups[:1])
    arguments = ["cmdare-lifetime", "--fit", str(fit), "--score", str(held), "--json"]
    assert main(arguments) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["dataset"] == "cmdare-lifetime"
    assert all(row["brier"] is not None for row in document["groups"])
