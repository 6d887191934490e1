"""What the planner's choices give away, fitted on few points of each curve."""

from __future__ import annotations

from pathlib import Path

from accuracy_checks.checking import Check
from sbtrain_perf.regret.choosing import Summary, choices_on, summarise
from sbtrain_perf.regret.curves import all_curves, server_curves


def checks(data: Path, scratch: Path) -> list[Check]:
    del scratch
    curves = all_curves(data)
    time = _over_all(summarise([c for curve in curves for c in choices_on(curve, "time")]))
    hours = _over_all(
        summarise([c for curve in curves for c in choices_on(curve, "node-hours")])
    )
    blind = server_curves(data, fitted_servers=(1,))
    unseen = _over_all(summarise([c for curve in blind for c in choices_on(curve, "time")]))
    lines = [
        Check(
            what="fastest of all configurations from few points, % of curves within 5 %",
            value=100.0 * time["ours"].within_5,
            bar=90.0,
            n=time["ours"].curves,
            at_least=True,
            yardstick=f"as many GPUs as there are {100.0 * time['most'].within_5:.1f}",
            note=_regret(time["ours"]),
        ),
        Check(
            what="fewest node-hours from few points, % of curves within 5 %",
            value=100.0 * hours["ours"].within_5,
            n=hours["ours"].curves,
            at_least=True,
            yardstick=f"as many GPUs as there are {100.0 * hours['most'].within_5:.1f}",
            note=_regret(hours["ours"]),
        ),
    ]
    for what, found, bar in (
        ("right number of servers from few points, %", time, 95.0),
        ("right number of servers, only one server ever run, %", unseen, None),
    ):
        ours, most = found["ours"], found["most"]
        if ours.right_servers is not None and most.right_servers is not None:
            lines.append(
                Check(
                    what=what,
                    value=100.0 * ours.right_servers,
                    bar=bar,
                    n=ours.servers,
                    at_least=True,
                    yardstick=f"one server {100.0 * most.right_servers:.1f}",
                )
            )
    return lines


def _over_all(summaries: list[Summary]) -> dict[str, Summary]:
    """By rule."""
    return {summary.rule: summary for summary in summaries if summary.source == "all"}


def _regret(summary: Summary) -> str:
    return (
        f"mean regret {100.0 * summary.mean_regret:.2f} %, "
        f"worst {100.0 * summary.worst_regret:.1f} %"
    )
