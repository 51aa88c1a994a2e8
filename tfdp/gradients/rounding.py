"""Whether a difference between two gradients of one example is more than rounding at a kink.

Kernels round otherwise in lots of another size. Where the input of a ReLU, or of a maximum, is a tie up to rounding, the
unit is on in one lot and off in the other: the loss stays, the gradient jumps. One such unit of a ResNet-18 moves an
example's gradient in some weight by 1e-3 to 4e-2, and large images have some in every lot.

A wider tolerance would hide mixing of that size, so the comparison is repeated at weights ``w_j`` a little off their
values: by far more than rounding, by too little to make another model. There other units are tied, or none, and differences
that come of rounding have nothing in common. What comes of other examples is still there. With ``d_j`` the difference at
``w_j``, the square of what persists is estimated by the median over all pairs ``j < k`` of ``<d_j, d_k>``.
"""

import itertools
from collections.abc import Callable
from contextlib import AbstractContextManager

import numpy as np

NEARBY = 2.0**-8  # of a weight's size; float32 rounds it by 2^-24
LOOKS = (3, 9)  # numbers of moved weights after which to decide
MOST = 100.0  # tolerances: where most differences are larger, the estimate is too rough to clear a model


def persisting(
    nearby_weights: Callable[[int], AbstractContextManager], differences: Callable[[], list[np.ndarray]]
) -> list[int]:
    """The places of the differences that are still there at other weights nearby.

    Args:
        nearby_weights: a context in which the weights are moved, another way for every number.
        differences: those at the present weights, in units of what is tolerated.
    """
    found = []
    left = []
    for number in range(1, LOOKS[-1] + 1):
        with nearby_weights(number):
            found.append([np.float32(difference) for difference in differences()])
        if number in LOOKS:
            left = [i for i, of_one_weight in enumerate(zip(*found, strict=True)) if not _is_rounding(of_one_weight)]
            if not left:
                break
    return left


def _is_rounding(differences: tuple[np.ndarray, ...]) -> bool:
    sizes = [np.linalg.norm(d) for d in differences]
    products = [np.vdot(a, b) for a, b in itertools.combinations(differences, 2)]
    return bool(np.median(sizes) <= MOST and np.median(products) <= 1)  # False where any is NaN
