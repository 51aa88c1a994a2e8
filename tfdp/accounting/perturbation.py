"""How much noise on the data two papers ask for, and why their claims do not follow.

Both papers add Gaussian noise to the features of the records and claim (epsilon, delta) for the model that is trained on
them: Kang et al. 2020, "Input Perturbation: A New Paradigm between Central and Local Differential Privacy"
(`input_noise`, eqs. 9 and 12), and Kang et al. 2020, "Differentially Private ERM Based on Data Perturbation"
(`data_noise`, eq. 10, and `record_noise`, eq. 15). Neither paper gives the constant c: it is the caller's, and 1 by default.
The c of eqs. 9 and 12 is a factor of the variance, that of eqs. 10 and 15 of the standard deviation.

Guarantee: none. What the noise on the data itself proves is `tfdp.accounting.analytic_gaussian`.
"""

from __future__ import annotations

import math

from tfdp.accounting import checks

_MOST = 10**18

INPUT_REASON = (
    "The proof (Kang et al. 2020, input perturbation, appendix A.1) composes fresh Gaussian noise at every step, while the noise "
    "is drawn once, and none is on the labels; it leaves out how the gradient of the loss itself depends on the noise; and its noise on the gradient has the "
    "scale of the loss's own excess, which is 'seemed as a constant' that no formula contains"
)
DATA_REASON = (
    "The proof (Kang et al. 2020, data perturbation, theorem 1) keeps the first-order Taylor term of the noise alone and puts the "
    "norm of a matrix in place of the matrix; it takes the noise, which is drawn once and for each record by itself, to be "
    "fresh and common to the whole batch; its constants are not given; and it asks for a q 'of the same order as 1 / |B|', batches of "
    "about sqrt(n) records, without saying within which factor"
)
RECORD_REASON = (
    "The proof (Kang et al. 2020, data perturbation, theorem 2) rests on first-order Taylor terms and takes the variance of w b to "
    "be w sigma^2; which records get noise, how much, and the pretrained model depend on the records, and nothing pays for that; "
    "theorem 1's condition on q does not hold for steps on one record, and is dropped without a word of proof; its constants are not given"
)


def range_of_theorem_2(epsilon: float, steps: int, size: int) -> str:
    """Theorem 2 is for epsilon < c_1 T / n^2 only: what that takes of c_1, which the paper does not give."""
    return (
        f"The theorem is for epsilon < c_1 T / n^2 only, with a c_1 that is not given: T / n^2 is {steps / size**2:.3g} here, so it says "
        f"something of this epsilon only if c_1 is above {epsilon * size**2 / steps:.3g}"
    )


def input_noise(
    epsilon: float,
    delta: float,
    steps: int,
    size: int,
    lipschitz: float,
    strong_convexity: float | None = None,
    constant: float = 1.0,
) -> float:
    """sigma of eq. 9, or of eq. 12 without `strong_convexity` (losses with the Polyak-Lojasiewicz condition):

        sigma^2 = c G^2 T ln(1 / delta) / (n (n - 1) sqrt(Delta) epsilon^2)      (eq. 12: without Delta)

    Args:
        epsilon: of the claim.
        delta: of the claim.
        steps: T, gradient steps on all records.
        size: n, the number of records, at least 2.
        lipschitz: G, the loss's Lipschitz constant in the weights.
        strong_convexity: Delta, the loss's; None for eq. 12.
        constant: c.

    Example:
        >>> round(input_noise(0.1, 1e-5, steps=100, size=1000, lipschitz=1.0, strong_convexity=0.01), 4)
        1.0735
    """
    epsilon, root = checks.target_epsilon(epsilon), _root_of_steps(steps, delta)
    size, lipschitz, constant = _size(size, 2), _lipschitz(lipschitz), _constant(constant)
    convexity = 1.0
    if strong_convexity is not None:
        convexity = checks.positive(
            "strong_convexity", strong_convexity, "write the loss's, such as its weight of ||w||^2 / 2"
        )
    return math.sqrt(constant / (size * (size - 1))) * lipschitz * root / (convexity**0.25 * epsilon)


def data_noise(
    epsilon: float, delta: float, steps: int, sampling_rate: float, lipschitz: float, constant: float = 1.0
) -> float:
    """sigma of eq. 10: c q G sqrt(T ln(1 / delta)) / epsilon, for T steps on batches of a share q of the records.

    The theorem is for q "of the same order as 1 / |B|", that is, batches of about sqrt(n) records.

    Example:
        >>> round(data_noise(1.0, 1e-5, steps=100, sampling_rate=0.01, lipschitz=1.0), 4)
        0.3393
    """
    epsilon, root = checks.target_epsilon(epsilon), _root_of_steps(steps, delta)
    return _constant(constant) * checks.sampling_rate(sampling_rate) * _lipschitz(lipschitz) * root / epsilon


def record_noise(
    epsilon: float, delta: float, steps: int, size: int, lipschitz: float, scale: float, constant: float = 1.0
) -> float:
    """sigma_t of eq. 15: c G sqrt(T ln(1 / delta)) / (sqrt(w_t) n epsilon), for a step on one record.

    As printed the root is over all of the denominator, sqrt(w_t n epsilon). The paper's own proof, eq. 16 and after, needs what is
    here: w_t sigma_t^2 has to be about G^2 T ln(1 / delta) / (n^2 epsilon^2). As printed it would be n epsilon times as large.
    Theorem 2 is for epsilon < c_1 T / n^2 only (`range_of_theorem_2`).

    Args:
        epsilon: of the claim.
        delta: of the claim.
        steps: T = R T_local.
        size: n, the number of records.
        lipschitz: G.
        scale: w_t, the norm of grad_x grad_theta of the loss at the record. At 0 no noise on the record reaches the gradient:
            infinity is returned.
        constant: c.

    Example:
        >>> round(record_noise(1.0, 1e-5, steps=100, size=1000, lipschitz=1.0, scale=0.25), 4)
        0.0679
    """
    epsilon, root = checks.target_epsilon(epsilon), _root_of_steps(steps, delta)
    size, lipschitz, constant = _size(size, 1), _lipschitz(lipschitz), _constant(constant)
    scale = checks.non_negative("scale", scale, "write the norm of grad_x grad_theta of the loss at the record")
    return constant * lipschitz * root / (math.sqrt(scale) * size * epsilon) if scale else math.inf


def _root_of_steps(steps: int, delta: float) -> float:
    """sqrt(T ln(1 / delta)), which all have in common."""
    steps = _count("steps", steps, "write how many gradient steps the training takes", 1)
    return math.sqrt(steps * -math.log(checks.delta(delta)))


def _size(size: int, at_least: int) -> int:
    return _count("size", size, "write the number of records", at_least)


def _count(name: str, value: int, advice: str, at_least: int) -> int:
    """Squares of it are still floats."""
    number = checks.count(name, value, advice, at_least)
    if number > _MOST:
        raise ValueError(f"{name} must be at most {_MOST:,}: {advice}")
    return number


def _lipschitz(lipschitz: float) -> float:
    return checks.positive(
        "lipschitz", lipschitz, "write the loss's Lipschitz constant, such as 1.0 for logistic regression"
    )


def _constant(constant: float) -> float:
    return checks.positive("constant", constant, "write the papers' c, such as 1.0")
