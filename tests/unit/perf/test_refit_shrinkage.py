"""Fits of few positive terms: exact where data is rich, the prior where there is none."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sbtrain_perf.shrinkage import fit_terms, spread

WIDE = np.array((3.0, 3.0))


def line(x: np.ndarray) -> np.ndarray:
    return np.stack((np.ones_like(x), x), axis=1)


@settings(max_examples=60, deadline=None)
@given(
    st.tuples(st.floats(1e-3, 1e3), st.floats(1e-3, 1e3)),
    st.tuples(st.floats(-2.0, 2.0), st.floats(-2.0, 2.0)),
    st.sampled_from([1.0, 5.8]),
)
def test_enough_data_outweighs_any_prior(
    truth: tuple[float, float], off: tuple[float, float], power: float
) -> None:
    terms = np.array(truth)
    ratio = terms[0] / terms[1]  # both terms must matter somewhere to be told apart
    features = line(np.repeat(ratio * np.array((0.05, 0.3, 1.0, 3.0, 20.0)), 20)) ** power
    measured = (features @ terms**power) ** (1.0 / power)
    fitted = fit_terms(features, measured, terms * np.exp(off), prior_sd=WIDE, power=power)
    np.testing.assert_allclose(fitted, terms, rtol=0.02)


def test_no_data_of_a_term_leaves_it_at_its_prior() -> None:
    features = np.array([[1.0, 0.0], [1.0, 0.0]])
    fitted = fit_terms(features, np.array((5.0, 5.0)), np.array((1.0, 0.3)), prior_sd=WIDE)
    assert fitted[1] == pytest.approx(0.3)
    assert fitted[0] == pytest.approx(5.0, rel=0.01)


def test_a_term_that_cannot_be_stays_away() -> None:
    features = line(np.array((1.0, 2.0)))
    fitted = fit_terms(features, np.array((5.0, 5.0)), np.array((1.0, 0.0)), prior_sd=WIDE)
    assert fitted[1] == 0.0


def test_the_dominant_term_takes_the_blame() -> None:
    """One measurement four times the prior: the term that made most of it moves most."""
    prior = np.array((1.0, 0.01))
    fitted = fit_terms(np.ones((1, 2)), np.array((4.04,)), prior, prior_sd=WIDE)
    moved = np.log(fitted / prior)
    assert moved[0] > 1.2 > 0.5 > moved[1] > 0.0


def test_one_outlier_among_many_hardly_counts() -> None:
    x = np.linspace(1.0, 10.0, 20)
    measured = 2.0 + 0.5 * x
    measured[7] *= 50.0
    fitted = fit_terms(line(x), measured, np.array((1.0, 1.0)), prior_sd=WIDE)
    np.testing.assert_allclose(fitted, (2.0, 0.5), rtol=0.1)


def test_noisy_data_leaves_more_to_the_prior() -> None:
    random = np.random.default_rng(3)
    prior, tight = np.array((1.0,)), np.array((0.3,))

    def fitted(noise: float) -> float:
        measured = 3.0 * np.exp(random.permutation(np.linspace(-noise, noise, 9)))
        return float(fit_terms(np.ones((9, 1)), measured, prior, prior_sd=tight)[0])

    assert 1.2 < fitted(1.5) < 2.0 < fitted(0.1) < 3.0


def test_the_spread_of_a_normal_sample_is_its_standard_deviation() -> None:
    sample = np.random.default_rng(1).normal(5.0, 2.0, 20_000)
    assert spread(sample) == pytest.approx(2.0, rel=0.05)
    assert spread(np.append(sample, 1e12)) == pytest.approx(2.0, rel=0.05)
