"""Draws of how many of a partition's servers live on, given what is known of some hours.

Where a count is known hours apart, or not at all, the hours between are drawn from the
belief, consistent with all that is known; quantiles of the draws are predictive intervals
of the same servers' survival, the chance of each server's own fate included.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaln

from sbtrain_perf.fitting.lifetime import EndedByHour, LifetimeBelief

Floats = NDArray[np.float64]

SWEEPS = 12  # of the sampler; spans mix at once, since only their splits are unknown


def draw_alive(
    belief: LifetimeBelief, group: EndedByHour, generator: np.random.Generator, *, draws: int
) -> Floats:
    """Servers of the group alive at the end of each bin, as its known counts allow.

    Shape (draws, bins). Deaths within a span of several hours are split by Gibbs sampling
    between shares and splits; hours after the last known are simulated server by server.
    """
    bins = len(belief.edges_s)
    spans = [span for span in group.spans() if span[1] <= bins]
    known = spans[-1][1] if spans else 0
    deaths = np.zeros((draws, bins))
    shares = belief.draw_shares(generator, draws)
    open_spans = any(last > first for first, last, *_ in spans)
    for _ in range(SWEEPS if open_spans else min(len(spans), 1)):
        for first, last, _, count in spans:
            inside = slice(first - 1, last)
            deaths[:, inside] = _split(shares[:, inside], count, generator)
        alive = group.servers - np.cumsum(deaths, axis=1)
        shares = _posterior_shares(belief, deaths, alive, known, generator)
    left = group.servers - deaths[:, :known].sum(axis=1)
    for at in range(known, bins):
        deaths[:, at] = generator.binomial(left.astype(np.int64), shares[:, at])
        left -= deaths[:, at]
    return np.asarray(group.servers - np.cumsum(deaths, axis=1))


def _split(shares: Floats, count: int, generator: np.random.Generator) -> Floats:
    """count deaths over the bins of a span, shape of shares (draws, bins)."""
    if shares.shape[1] == 1:
        return np.full(shares.shape, float(count))
    enter = np.cumprod(np.hstack([np.ones((len(shares), 1)), 1.0 - shares[:, :-1]]), axis=1)
    chances = np.maximum(shares * enter, 1e-12)
    chances /= chances.sum(axis=1, keepdims=True)
    return generator.multinomial(count, chances).astype(np.float64)


def _posterior_shares(
    belief: LifetimeBelief,
    deaths: Floats,
    alive: Floats,
    known: int,
    generator: np.random.Generator,
) -> Floats:
    """Shares given deaths and survivals up to bin `known`: a level first, then the Betas."""
    dead = np.repeat(belief.deaths[None], len(deaths), axis=0)
    living = np.repeat(belief.survived[None], len(deaths), axis=0)
    dead[:, :, :known] += deaths[:, None, :known]
    living[:, :, :known] += alive[:, None, :known]
    before = betaln(belief.deaths, belief.survived)[None, :, :known]
    gained = betaln(dead[:, :, :known], living[:, :, :known]) - before
    logs = gained.sum(axis=2) + belief.log_weights
    # The Gumbel trick: one level a draw, in proportion to exp(logs).
    level = np.argmax(logs + generator.gumbel(size=logs.shape), axis=1)
    rows = np.arange(len(level))
    return np.asarray(generator.beta(dead[rows, level], living[rows, level]))
