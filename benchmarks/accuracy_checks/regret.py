"""What the planner's rule gives away, fitted on few points of each curve: by the scorers'
predictions, and by the planner's own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from accuracy_checks import cmdare, pollux
from accuracy_checks.checking import Check, Planner
from accuracy_checks.replay import Replay, Run, Setting
from sbtrain_perf.regret.choosing import (
    Curve,
    Objective,
    Option,
    Summary,
    choices_on,
    summarise,
)
from sbtrain_perf.regret.curves import LEAST_OPTIONS, all_curves, server_curves
from sbtrain_perf.score.cmdare import Cnn, read_cnns


def checks(data: Path, scratch: Path) -> list[Check]:
    del scratch
    curves = all_curves(data)
    blind = server_curves(data, fitted_servers=(1,))
    cnns = read_cnns(data, data)
    planned = [
        *(_served(curve, cnns) for curve in curves if curve.source != "pollux"),
        *_synchronous([curve for curve in curves if curve.source == "pollux"]),
    ]
    time, hours = _judged(curves, "time"), _judged(curves, "node-hours")
    own_time, own_hours = _judged(planned, "time"), _judged(planned, "node-hours")
    unseen = _judged(blind, "time")
    own_unseen = _judged([_served(curve, cnns) for curve in blind], "time")
    own_cold = _judged([_served(_forgotten(curve), cnns) for curve in blind], "time")
    return [
        Check(
            what="fastest of all configurations from few points, % of curves within 5 %",
            value=100.0 * time["ours"].within_5,
            planner=_within(own_time["ours"], note=_by_batch(planned)),
            bar=90.0,
            n=time["ours"].curves,
            at_least=True,
            yardstick=f"as many GPUs as there are {100.0 * time['most'].within_5:.1f}",
            note=_regret(time["ours"]),
        ),
        Check(
            what="fewest node-hours from few points, % of curves within 5 %",
            value=100.0 * hours["ours"].within_5,
            planner=_within(own_hours["ours"]),
            n=hours["ours"].curves,
            at_least=True,
            yardstick=f"as many GPUs as there are {100.0 * hours['most'].within_5:.1f}",
            note=_regret(hours["ours"]),
        ),
        _servers("right number of servers from few points, %", time, own_time, bar=95.0),
        _servers("right number of servers, only one server ever run, %", unseen, own_unseen),
        _servers("right number of servers, nothing ever run, %", None, own_cold),
    ]


def _judged(curves: Sequence[Curve], objective: Objective) -> dict[str, Summary]:
    """Over all curves, by rule."""
    summaries = summarise([c for curve in curves for c in choices_on(curve, objective)])
    return {summary.rule: summary for summary in summaries if summary.source == "all"}


def _by_batch(planned: Sequence[Curve]) -> str:
    """How the planner chooses on curves of all-reduce whose batch ran, and on the others."""
    said = []
    for ran in (True, False):
        curves = [c for c in planned if c.source == "pollux" and (c.fitted > 0) is ran]
        share = 100.0 * _judged(curves, "time")["ours"].within_5
        said.append(f"{share:.0f} of {len(curves)} whose batch {'ran' if ran else 'did not'}")
    return "all-reduce: " + ", ".join(said)


def _within(own: Summary, *, note: str = "") -> Planner:
    parts = ("as many GPUs on every node", _regret(own), note)
    note = "; ".join(filter(None, parts))
    return Planner(value=100.0 * own.within_5, n=own.curves, note=note)


def _servers(
    what: str,
    found: Mapping[str, Summary] | None,
    own: Mapping[str, Summary],
    *,
    bar: float | None = None,
) -> Check:
    """found None: the scorer does not choose without a run."""
    planner, most = own["ours"], own["most"]
    assert planner.right_servers is not None
    assert most.right_servers is not None
    scorer = found["ours"].right_servers if found else None
    return Check(
        what=what,
        value=None if scorer is None else 100.0 * scorer,
        planner=Planner(value=100.0 * planner.right_servers, n=planner.servers),
        bar=bar,
        n=planner.servers,
        at_least=True,
        yardstick=f"one server {100.0 * most.right_servers:.1f}",
    )


def _forgotten(curve: Curve) -> Curve:
    options = tuple(replace(option, fitted=False) for option in curve.options)
    return replace(curve, options=options)


def _served(curve: Curve, cnns: Mapping[str, Cnn]) -> Curve:
    """The curve as the planner predicts it once it has learnt its fitted options."""
    gpu, _, network = curve.name.partition(" ")

    def where(option: Option) -> Setting:
        return cmdare.setting(cnns, network, gpu, workers=option.size, servers=option.servers)

    replay = Replay([(gpu, 1)])
    learnt = replay.learnt(
        [Run(setting=where(o), step_s=1.0 / o.measured) for o in curve.options if o.fitted]
    )
    points = replay.steps([(where(o), 1.0 / o.measured) for o in curve.options], learnt)
    return replace(
        curve,
        options=tuple(
            replace(option, predicted=1.0 / point.predicted)
            for option, point in zip(curve.options, points, strict=True)
        ),
    )


def _synchronous(curves: Sequence[Curve]) -> Iterator[Curve]:
    """The same of all-reduce: a workload is learnt at all its fitted batches together. Only
    options with as many GPUs on every node are the planner's to choose."""
    replay = Replay([("T4", gpus) for gpus in range(1, 5)], link_bytes_s=pollux.LINK_BYTES_S)
    even = {curve: [o for o in curve.options if len(set(o.label)) == 1] for curve in curves}
    for workload in dict.fromkeys(_workload(curve)[0] for curve in curves):
        own = [curve for curve in curves if _workload(curve)[0] == workload]
        learnt = replay.learnt(
            [
                Run(setting=_where(curve, o), step_s=_step_s(curve, o, o.measured))
                for curve in own
                for o in even[curve]
                if o.fitted
            ]
        )
        for curve in own:
            if len(even[curve]) < LEAST_OPTIONS:
                continue
            points = replay.steps([(_where(curve, o), 1.0) for o in even[curve]], learnt)
            options = tuple(
                replace(option, predicted=_step_s(curve, option, point.predicted))
                for option, point in zip(even[curve], points, strict=True)
            )
            yield replace(curve, options=options)


def _workload(curve: Curve) -> tuple[str, float]:
    """Name and batch of a GPU, as the curve is called after them."""
    workload, _, batch = curve.name.rpartition(", ")
    return workload, float(batch.split()[0])


def _where(curve: Curve, option: Option) -> Setting:
    workload, batch = _workload(curve)
    nodes, gpus = len(option.label), int(option.label[0])
    return pollux.setting(workload, nodes=nodes, gpus=gpus, batch=batch)


def _step_s(curve: Curve, option: Option, rate: float) -> float:
    """Seconds of a step at so many samples a second; the other way round it is the same."""
    return option.size * _workload(curve)[1] / rate


def _regret(summary: Summary) -> str:
    return (
        f"mean regret {100.0 * summary.mean_regret:.2f} %, "
        f"worst {100.0 * summary.worst_regret:.1f} %"
    )
