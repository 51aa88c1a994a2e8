"""What a run of Gaussian releases pays for the tails that its noise does not have."""

import math

# Of a pair of draws (`tfdp.mechanisms.normals`): the radius is made of so many random bits, and so has an end.
RADIUS_BITS = 75
LARGEST_RADIUS = math.sqrt(2 * RADIUS_BITS * math.log(2))


def finite_support_delta(weights: int, steps: int, noise_multiplier: float) -> float:
    """What it adds to delta that no pair of draws has a radius beyond r_max, over a run of Gaussian releases.

    Formal guarantee: let a run with true Gaussian noise be (epsilon, delta)-differentially private, at any epsilon,
    because of how its steps' distributions compare given earlier outputs and the lots of all *other* records (so the
    accountants price Poisson lots, full batches and declared batches). Then the same run with the noise of
    ``standard_normals`` (1. of ``tfdp.mechanisms.normals``) is (epsilon, delta + finite_support_delta)-differentially private. Of lines with
    different noise the prices add up.

    Proof. A step draws m = ceil(weights / 2) pairs (an odd one's spare draw may be thought released: its shift is 0).
    In units of the standard deviation, a record moves pair i by s_i, and sum s_i^2 <= S^2 = 1 / noise_multiplier^2.
    Write t = 2^-75, M = m * steps; p and q for the densities of all outputs on two neighbours, P' and Q' for the
    real runs; everything is given the lots of other records. Each step of p, q is a Gaussian centred at one of at most
    two points, the sum with the record and without it, or a mixture of both by the record's own coin. Let G be the
    outputs of which every pair of every step lies within r_max of both centres. The densities of P' and Q' are at most
    p / (1 - t)^M and q / (1 - t)^M everywhere, and exactly that on G. So for any set of outputs O

        P'(O) <= (P(O and G)) / (1 - t)^M + P'(not G)
              <= (e^epsilon Q(O and G) + delta) / (1 - t)^M + P'(not G)
              <= e^epsilon Q'(O) + delta / (1 - t)^M + P'(not G),

    and the same with P and Q exchanged. Outside of G a pair z, within r_max of its own centre, is beyond it of the other:
    |z + s| > r_max, with probability at most exp(-(r_max - s)^2 / 2) = t f(s), f(s) = exp(r_max s - s^2 / 2). Up to
    s = r_max - sqrt(3) the second derivative of f grows, hence so does (f(s) - 1 - r_max s) / s^2, and

        f(s_i) <= 1 + r_max s_i + (s_i / S)^2 f(S);   summed over a step's pairs   <= m + r_max S sqrt(m) + f(S).

    Last, delta / (1 - t)^M <= delta + M t wherever delta + 2 M t <= 1; beyond that nothing is claimed. Together a step
    costs at most t (2 m + r_max S sqrt(m) + f(S)), and a noise multiplier below 0.118 (S > r_max - sqrt(3)) costs 1.

    Example, a million weights over 10,000 steps:

    >>> f"{finite_support_delta(10**6, 10_000, noise_multiplier=1.1):.1e}"
    '2.7e-13'
    """
    for name, count in (("weights", weights), ("steps", steps)):
        if count < 0:
            raise ValueError(f"{name} is a count, so it is 0 or more. Received: {name}={count}")
    if not noise_multiplier >= 0:
        raise ValueError(f"noise_multiplier is 0 or more. Received: noise_multiplier={noise_multiplier}")
    if steps == 0 or weights == 0:
        return 0.0
    shift = 1 / noise_multiplier if noise_multiplier else math.inf
    return min(1.0, steps * cut_pairs_delta((weights + 1) // 2, shift, LARGEST_RADIUS))


def cut_pairs_delta(pairs: int, shift: float, radius: float) -> float:
    """A step's price in ``finite_support_delta``: ``shift`` is S, ``radius`` any r_max, and t = exp(-r_max^2 / 2)."""
    if shift > radius - math.sqrt(3):
        return 1.0
    tail = math.exp(-(radius**2) / 2)
    return tail * (2 * pairs + radius * shift * math.sqrt(pairs)) + math.exp(-((radius - shift) ** 2) / 2)
