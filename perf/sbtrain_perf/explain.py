"""Decisions as a table that fits the screen, and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from sbtrain_perf.codec import encode
from sbtrain_perf.decision import (
    TERM_NAMES,
    Decision,
    Row,
    interval_in_words,
    measure,
    setup,
    share_in_words,
    term_seconds,
)
from sbtrain_perf.models.staging import serialised_read_s, shared_read_s
from sbtrain_perf.request import ClusterShape, Plan, Prediction
from sbtrain_perf.table import WIDTH, Column, laid_out, wrapped
from sbtrain_perf.wording import amount, brief_duration, brief_range, count, duration, ratio

_FRONT = 3  # so many rows of the Pareto front are named, and the cheapest
_NAMED = 3  # so many partitions of a group are named
_NAME = 18  # characters of a partition's name in the table

_TERMS = ("queue", "stage", "start", "steps", "saves", "lost", "total", "90 %")
_WORDS = (0, 1, 3)  # columns of words, not numbers
_REASON_INDENT = " " * 22  # of why a row was not taken, below it


def plan_table(decision: Decision, shape: ClusterShape, *, width: int = WIDTH) -> str:
    """What was weighed and why: the best row of each partition and layout line by line,
    the chosen one marked with `>`, others that are fastest or cheapest for their cost or
    time with `*`, the rest grouped with their reasons. width: of the screen, in columns."""
    priced = _priced(decision)
    currency = shape.currency if priced else "node-h"
    lines = [
        f"cluster {shape.name}: {count(decision.considered, 'candidate')}, objective "
        f"{_objective(decision)}",
        "",
    ]
    shown = _first_of_pairs(decision.rows)
    if shown:
        lines += _rows(shown, priced=priced, currency=currency, width=width)
        lines.append("")
    groups = [*_more_rows(decision, shown, priced=priced), *_refused(decision.rows)]
    groups += [f"{count(rest.rows, 'row')} not listed: {rest.reason}" for rest in decision.rest]
    prose = [line for group in groups for line in wrapped(group, width=width, indent="  ")]
    lines += [*prose, ""] if prose else []
    if decision.chosen is None:
        said = [f"No plan: {decision.refusal}"]
    else:
        said = [
            f"Chosen: {decision.chosen.reason}.",
            f"Predicted: {_terms(decision.chosen, shape)}.",
            *_staging(decision.chosen, shape),
            f"{_front(decision, priced=priced, currency=currency)}.",
        ]
    said += [f"Note: {note}." for note in (*decision.notes, *decision.risks)]
    lines += [line for text in said for line in wrapped(text, width=width)]
    return "\n".join(lines) + "\n"


def plan_json(decision: Decision, shape: ClusterShape) -> str:
    """The whole decision as JSON: cluster, site, objective, chosen (a plan or null), rows,
    considered, rest, notes, risks, refusal."""
    data = {"cluster": shape.name, "site": shape.source, "currency": shape.currency}
    return json.dumps({**data, **encode(decision)}, indent=2) + "\n"


def _priced(decision: Decision) -> bool:
    return any(row.prediction.cost > 0 for row in decision.rows if row.prediction)


def _objective(decision: Decision) -> str:
    objective = decision.objective
    if objective.kind == "deadline":
        sure = share_in_words(objective.sure)
        return f"cheapest within {duration(objective.deadline_s or 0.0)} with {sure}"
    return objective.kind


def _first_of_pairs(rows: Sequence[Row]) -> list[Row]:
    """Rows come best first: the first of each partition and layout is its best."""
    first: dict[tuple[str, str], Row] = {}
    for row in rows:
        if row.nodes:
            first.setdefault((row.partition, row.layout), row)
    return list(first.values())


def _rows(rows: Sequence[Row], *, priced: bool, currency: str, width: int) -> Iterator[str]:
    """A row and, below it, why it was not taken; of the terms, those that take any time."""
    names = ("", "partition", "nodes", "layout", *_TERMS, currency[:9])
    cells = [_cells(row, priced=priced) for row in rows]
    kept = [at for at, own in enumerate(zip(*cells, strict=True)) if set(own) - {"0s", "-"}]
    columns = [Column(title=names[at], right=at not in _WORDS) for at in kept]
    shown = [[row[at] for at in kept] for row in cells]
    head, *bodies = laid_out(columns, shown, width=width, lead=2)
    yield from head
    indent = _REASON_INDENT if head else "    "
    for row, body in zip(rows, bodies, strict=True):
        yield from body
        if row.rejected:
            yield from wrapped(row.rejected, width=width, indent=indent)


def _cells(row: Row, *, priced: bool) -> tuple[str, ...]:
    layout = f"ps:{row.servers}" if row.servers else "allreduce"
    mark = ">" if row.chosen else "*" if row.pareto else " "
    numbers = ["-"] * (len(_TERMS) + 1)
    prediction = row.prediction
    if prediction is not None:
        seconds = [*term_seconds(prediction).values(), prediction.total_s]
        price = amount(prediction.cost if priced else prediction.node_hours)
        numbers = [*map(brief_duration, seconds), _interval(prediction), price]
    name = row.partition
    short = name if len(name) <= _NAME else f"{name[: _NAME - 1]}…"
    return (mark, short, f"{row.nodes:,}", layout, *numbers)


def _interval(prediction: Prediction) -> str:
    if prediction.total_low_s is None or prediction.total_high_s is None:
        return "-"
    return brief_range(prediction.total_low_s, prediction.total_high_s)


def _front(decision: Decision, *, priced: bool, currency: str) -> str:
    """The rows that none beats in both time and cost, the fastest first."""
    front = [(r, r.prediction) for r in decision.rows if r.pareto and r.prediction]
    front.sort(key=lambda pair: pair[1].total_s)
    shown = [*front[:_FRONT], front[-1]] if len(front) > _FRONT + 1 else front
    said = [
        f"{setup(row)} {duration(prediction.total_s)} for "
        f"{amount(prediction.cost if priced else prediction.node_hours)}"
        for row, prediction in shown
    ]
    if len(front) > len(shown):
        said.insert(_FRONT, f"{len(front) - len(shown)} more")
    return f"None is both faster and cheaper ({currency}): " + "; ".join(said)


def _terms(plan: Plan, shape: ClusterShape) -> str:
    prediction = plan.prediction
    parts = [
        f"{TERM_NAMES[name]} {duration(seconds)}"
        for name, seconds in term_seconds(prediction).items()
        if seconds >= 0.05
    ]
    samples = plan.batch_per_worker * (1 if plan.servers else plan.workers)
    steps = (
        f"{count(prediction.steps, 'step')} of {duration(prediction.step_s)} on "
        f"{count(samples, 'sample')} each"
    )
    sure = interval_in_words(prediction)
    text = f"{duration(prediction.total_s)}{sure} = {' + '.join(parts)} ({steps}); "
    hours = f"{amount(prediction.node_hours)} node-hours"
    if prediction.cost > 0:
        return f"{text}{hours}, {amount(prediction.cost)} {shape.currency}"
    return text + hours


def _staging(plan: Plan, shape: ClusterShape) -> Iterator[str]:
    """How the data reaches the nodes, beside how long it would take in other ways."""
    size, took_s = float(plan.data.total_bytes), plan.prediction.stage_s
    if size <= 0.0 or took_s <= 0.0:
        return
    rates = {
        "client_bytes_s": shape.shared_client_bytes_s,
        "shared_bytes_s": shape.shared_bytes_s,
    }
    nodes = float(plan.nodes)
    others = [("one node after another", float(serialised_read_s(size, nodes=nodes, **rates)))]
    if plan.scratch_path:
        at_once_s = float(shared_read_s(size, nodes=nodes, **rates))
        others.insert(0, ("by every node from the shared filesystem at once", at_once_s))
        what = "Staging, read once and forwarded to each node's scratch,"
    else:
        what = (
            f"{plan.partition} has no scratch, so every node reads the shared filesystem, which"
        )
    if max(seconds for _, seconds in others) < took_s:
        return  # so little data that the time is the start of staging itself
    said = ", ".join(
        f"{how} {duration(seconds)} ({ratio(seconds / took_s)} x)" for how, seconds in others
    )
    yield f"{what} takes {duration(took_s)}; read {said}."


def _more_rows(decision: Decision, shown: Sequence[Row], *, priced: bool) -> Iterator[str]:
    """The other rows of each listed partition and layout, in one line each."""
    best = next((row.prediction for row in decision.rows if row.chosen), None)
    for first in shown:
        pair = (first.partition, first.layout)
        others = [
            row
            for row in decision.rows
            if (row.partition, row.layout) == pair and row is not first and row.nodes
        ]
        if not others:
            continue
        ends = [row for row in others if row.prediction is not None]
        sure = decision.objective.sure
        late = [r for r in ends if r.deadline_odds is not None and r.deadline_odds < sure]
        values = [
            measure(row.prediction, decision.objective, priced=priced)
            for row in ends
            if row.prediction is not None and row not in late
        ]
        way = "all-reduce" if first.layout == "allreduce" else "parameter servers"
        text = f"{count(len(others), 'more row')} of {first.partition} with {way}"
        least = measure(best, decision.objective, priced=priced) if best else 0.0
        if len(ends) < len(others):
            text += f", {len(others) - len(ends)} of which will not end"
        if late:
            text += f", {len(late)} of which miss the deadline"
        if values and least > 0:
            low, high = ratio(min(values) / least), ratio(max(values) / least)
            text += f": {low} to {high} x the chosen row" if low != high else f": {low} x"
            if decision.objective.kind == "balanced":
                text += " in time"
        yield text


def _refused(rows: Sequence[Row]) -> Iterator[str]:
    """Partitions that were refused outright, by reason."""
    reasons: dict[str, list[str]] = {}
    for row in rows:
        if not row.nodes and row.rejected:
            layout = "" if row.layout == "allreduce" else " (parameter servers)"
            reasons.setdefault(row.rejected, []).append(row.partition + layout)
    for reason, names in reasons.items():
        more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
        yield f"not {', '.join(names[:_NAMED])}{more}: {reason}"
