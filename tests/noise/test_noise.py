"""Noise as data: it round-trips, it scales, and a wrong parameter is refused with what to write."""

import dataclasses
import json
import pickle

import numpy as np
import pytest

from tfdp.noise import Cauchy, Gaussian, HyperbolicSecant, Laplace, Noise, StudentT, VarianceGamma

ALL = [Gaussian(1.1), StudentT(9, 1.0), StudentT(1, scale=0.5), Laplace(1.0), Cauchy(0.3), HyperbolicSecant(2.0)]
ALL.append(VarianceGamma(2.0, 1.0))


def test_a_family_does_not_take_the_place_of_another_of_its_name():
    """A ledger that says "Laplace" means that of tfdp, whatever was imported since."""
    with pytest.raises(ValueError, match="is a family already"):
        type("Laplace", (Noise,), {})
    assert Noise.kinds["Laplace"] is Laplace


@pytest.mark.parametrize("noise", ALL, ids=str)
def test_the_config_round_trips_through_json(noise):
    assert Noise.from_config(json.loads(json.dumps(noise.get_config()))) == noise
    assert pickle.loads(pickle.dumps(noise)) == noise
    assert hash(noise) == hash(dataclasses.replace(noise))


@pytest.mark.parametrize("noise", ALL, ids=str)
def test_a_scaled_noise_is_that_many_times_the_noise(noise):
    x = np.linspace(-5, 5, 11)
    scaled = noise.scaled(3.0)
    np.testing.assert_allclose(scaled.log_density(3 * x), noise.log_density(x) - np.log(3), rtol=1e-12, atol=1e-12)
    assert scaled.size == pytest.approx(3 * noise.size)
    assert scaled.standard == noise.standard and noise.standard.size == 1.0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Gaussian(0), "stddev must be a positive finite number, not 0"),
        (lambda: Gaussian(True), "stddev"),
        (lambda: Laplace(float("inf")), "stddev"),
        (lambda: Cauchy("1"), "scale"),
        (lambda: StudentT(2, 1.0), r"write StudentT\(2, scale=1.0\)"),
        (lambda: StudentT(9), "exactly one of stddev and scale"),
        (lambda: StudentT(9, 1.0, 1.0), "exactly one"),
        (lambda: VarianceGamma(-1, 1.0), "shape"),
        (lambda: Noise.from_config({"type": "Uniform"}), "no noise family is called 'Uniform'"),
    ],
)
def test_a_wrong_parameter_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
