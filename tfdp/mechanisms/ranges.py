"""How small and how large the numbers of a mechanism may be, so that float32 keeps its noise.

Between 1.2e-38 and 3.4e38 float32 has seven digits. Below, kernels read and write 0 (denormals are flushed); above, infinity.
Noise that is read as 0 is no noise, whatever the ledger says of it: a clip of 1e-38 would release sums as they are. So clips
and noise keep a wide distance from both ends.

Noise that is small beside the clip is another matter. Float32 rounds it away as well, when it is added to sums of some clips; but
below 0.118 clips its missing tails cost all of delta (``tfdp.accounting.finite_support_delta``), so that nothing is proven of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

LEAST_CLIP, LARGEST_CLIP = 1e-20, 1e20
LEAST_STDDEV, LARGEST_STDDEV = 1e-30, 1e30  # of a coordinate's noise, before the sum is divided by a lot's size


class Checked(Protocol):
    """What a ``Setting`` is a setting of."""

    def check_noise(self) -> None:
        """Raises ValueError where float32 would lose the noise."""


class Setting:
    """A number of a mechanism, checked whenever it is assigned: in the constructor, by a calibration, or by the user later.

    A number that is refused leaves the one before in its place.
    Args:
        checked: makes the number of what was assigned, or raises ValueError.
        or_infinite: whether infinity may be assigned all the same. A clip of infinity is none: a mechanism of one's own may add up
            gradients as they are. None is made with it, and no fit begins with it.
    """

    def __init__(self, checked: Callable[[str, Any], float | None], or_infinite: bool = False):
        self._checked, self._or_infinite = checked, or_infinite

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, mechanism: Checked | None, owner: type | None = None) -> Any:
        if mechanism is None:
            return self
        try:
            return mechanism.__dict__[self._name]
        except KeyError:
            raise AttributeError(f"{type(mechanism).__name__} has no {self._name} yet") from None

    def __set__(self, mechanism: Checked, value: Any) -> None:
        own, name = mechanism.__dict__, self._name
        if self._or_infinite and isinstance(value, float) and value == math.inf:
            own[name] = value
            return
        before = {key: own[key] for key in (name,) if key in own}
        own[name] = self._checked(name, value)
        try:
            mechanism.check_noise()
        except ValueError:
            del own[name]
            own.update(before)
            raise


def number(name: str, value: float, positive: bool) -> float:
    wanted = "a positive finite number" if positive else "a finite number of at least 0"
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):  # OverflowError: an int beyond all floats
        number = math.nan
    if isinstance(value, bool | str) or not math.isfinite(number) or number < 0 or (positive and number == 0):
        raise ValueError(f"{name} must be {wanted}, not {value!r}.")
    return number


def clip(name: str, value: float) -> float:
    """The most that an example may weigh."""
    found = number(name, value, positive=True)
    if not LEAST_CLIP <= found <= LARGEST_CLIP:
        raise ValueError(
            f"{name}={value!r} must lie between {LEAST_CLIP:g} and {LARGEST_CLIP:g}: float32 turns smaller sums and their noise "
            "into 0, and larger ones into infinity. Multiply the loss by a constant, and the clip by the same."
        )
    return found


def noise_or_none(name: str, value: float | None) -> float | None:
    """A noise multiplier; None if it is still to be found."""
    return None if value is None else number(name, value, positive=False)


def check_stddev(name: str, noise: float, clip: float, scales: tuple[float, float] = (1.0, 1.0)) -> None:
    """Refuses noise that float32 would lose: of ``noise * clip``, times scales between these two.

    Args:
        name: of the number that the user gave for the noise.
        noise: its standard deviation in units of the clip. 0 is no noise, and no privacy either: that is allowed.
        clip: the clip.
        scales: the least and the largest that a coordinate's noise is multiplied by.

    Raises:
        ValueError: it is lost.
    """
    if noise == 0:
        return
    least, largest = (noise * clip * scale for scale in scales)
    if least < LEAST_STDDEV:
        reason = f"Noise of standard deviation {least:g} is read as 0 in float32."
    elif not largest <= LARGEST_STDDEV:
        reason = f"Noise of standard deviation {largest:g} is more than float32 can compute with."
    else:
        return
    scaled = "" if scales == (1.0, 1.0) else f" and scales of {scales[0]:g} to {scales[1]:g}"
    raise ValueError(
        f"{name}={noise:g} does not go with l2_norm_clip={clip:g}{scaled}. {reason} Write numbers that are less "
        f"extreme, so that it lies between {LEAST_STDDEV:g} and {LARGEST_STDDEV:g}; a {name} of 0.0 trains without noise and without privacy."
    )
