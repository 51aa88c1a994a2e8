"""What a run of encoded releases pays for the tails that its noise does not have."""

import math

from tfdp.accounting.codebooks import Codebook
from tfdp.accounting.finite_support import LARGEST_RADIUS, RADIUS_BITS, cut_pairs_delta
from tfdp.noise import Gaussian, Noise, StudentT

CUT = 2.0**-RADIUS_BITS  # the probability with which a true draw is one that is never made
_MOST_CUT = 0.01  # of a run's draws; beyond that nothing is claimed


def noise_tails_delta(noise: Noise, codebook: Codebook, steps: int) -> float:
    """What it adds to delta that no draw of ``noise_draws`` has U <= t = 2^-75, over a run of encoded releases.

    Formal guarantee: as that of ``finite_support_delta``, for releases whose records move coordinate j by s_j, in absolute value
    and in some order at most a codeword's magnitudes.

    Proof. Let k(z) be the probability that a true draw, given that it is z, is one that is never made; its mean is t. Drawn is
    the density f (1 - k) / (1 - t). Write p, q for the densities of all outputs on two neighbours with true noise, p', q' for
    those that are run, M = weights * steps; everything is given the lots of other records. Each step of p, q is the noise
    around one of at most two centres, the sum with the record and without it, or a mixture of both by the record's own coin.
    Let H be the smaller of the products of 1 - k over all draws, at their distances from either centre in each step. Then
    p' <= p / (1 - t)^M and q' >= q H / (1 - t)^M, so

        p' - e^epsilon q' <= (H (p - e^epsilon q) + p (1 - H)) / (1 - t)^M.

    The first part's positive values sum to at most delta. 1 - H is at most the sum of k at both distances of each draw,
    whose means under p are t and at most e(s) = E[k(Z + s)], s the distance of the two centres. e grows with |s|; s is at most
    the largest magnitude of any codeword.

    - By formula or quantile, k is 1 beyond x = Q(t / 2) and 0 up to there: e(s) = P(|Z + s| > x).
    - StudentT is the first of two coordinates of a pair, and never made are pairs beyond a radius: e(s) is the mean of
      k(z) f(z - s) / f(z), at most t times the largest ratio, L^((df + 1) / 2), with a = s / scale and
      L = 1 + a^2 / (2 df) + a sqrt(a^2 + 4 df) / (2 df).
    - Gaussian noise: ``cut_pairs_delta``, a codeword's norm being at most 1.

    Last, delta / (1 - t)^M <= delta + M t wherever delta + 2 M t <= 1. A step costs weights * (2 t + e(s)), times 1.02 for what
    (1 - t)^M leaves as long as M t <= 0.01.

    Example:

    >>> from tfdp.noise import StudentT
    >>> f"{noise_tails_delta(StudentT(9, stddev=1.0), Codebook(weights=26_000, size=10), steps=10_000):.1e}"
    '2.1e-14'
    """
    if steps == 0:
        return 0.0
    draws = codebook.weights * steps
    if draws * CUT > _MOST_CUT:
        return 1.0
    if type(noise) is Gaussian:
        pairs = (codebook.weights + 1) // 2
        return min(1.0, steps * cut_pairs_delta(pairs, 1 / noise.stddev, LARGEST_RADIUS))
    beyond = cut_of_a_moved_draw(noise, float(codebook.magnitudes[:, -1].max()))
    return min(1.0, 1.02 * draws * (2 * CUT + beyond))


def cut_of_a_moved_draw(noise: Noise, shift: float) -> float:
    """e(s)."""
    if type(noise) is StudentT:
        a, df = shift / noise.factor, noise.df
        ratio = 1 + a * a / (2 * df) + a * math.sqrt(a * a + 4 * df) / (2 * df)
        return CUT * math.exp(min((df + 1) / 2 * math.log(ratio), 700.0))
    end = float(noise.upper_quantile(CUT / 2))
    return float(noise.survival(end - shift) + noise.survival(end + shift))
