"""What every noise family is: frozen data with a log density and tails."""

from __future__ import annotations

import abc
import dataclasses
import math
import numbers
from typing import ClassVar

import numpy as np

_FAMILIES = "tfdp.noise.families"
_SCALE_FIELDS = ("stddev", "scale")


@dataclasses.dataclass(frozen=True)
class Noise(abc.ABC):
    """Noise added to each coordinate independently, symmetric about 0 and densest there.

    A family of your own is a frozen dataclass with two methods and a field called `stddev` or `scale` that multiplies
    the noise. `log_density` is what is priced, `upper_quantile` what is drawn: a sampler makes a random sign times
    `upper_quantile(u / 2)`, u uniform on (0, 1]. Its density must be finite, positive, symmetric about 0 and nowhere
    increasing in |x|: the accountants check that, and that the two methods agree.

    Example:
        >>> @dataclasses.dataclass(frozen=True)
        ... class Logistic(Noise):
        ...     scale: float
        ...
        ...     def log_density(self, x):
        ...         z = np.abs(np.asarray(x, dtype=float)) / self.scale
        ...         return -z - 2 * np.log1p(np.exp(-z)) - np.log(self.scale)
        ...
        ...     def upper_quantile(self, tail):
        ...         return self.scale * (np.log1p(-np.asarray(tail)) - np.log(tail))
        >>> round(Logistic(1.0).variance, 4)  # pi^2 / 3
        3.2899
    """

    kinds: ClassVar[dict[str, type[Noise]]] = {}

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        known = Noise.kinds.get(cls.__name__)
        if known is not None and known.__module__ == _FAMILIES != cls.__module__:
            raise ValueError(
                f"tfdp.noise.{cls.__name__} is a family already, which ledgers know by its name: give the class another"
            )
        Noise.kinds[cls.__name__] = cls

    @abc.abstractmethod
    def log_density(self, x: np.ndarray) -> np.ndarray:
        """The logarithm of the density at each x, also where the density itself is below all floats."""

    @abc.abstractmethod
    def upper_quantile(self, tail: np.ndarray) -> np.ndarray:
        """The x beyond which (above) lies the mass `tail`, from 0 to 1/2; precise for tails of 1e-300 too."""

    def survival(self, x: np.ndarray) -> np.ndarray:
        """The mass above each x. By numerical integration of the density, unless a family knows a formula."""
        from tfdp.noise.tails import survival

        return survival(self, x)

    @property
    def variance(self) -> float:
        return self.absolute_moment(2)

    @property
    def mean_absolute(self) -> float:
        """E|Z|: what a coordinate's noise adds to the expected l1 distortion."""
        return self.absolute_moment(1)

    def absolute_moment(self, power: float) -> float:
        """E|Z|^power; infinite where the tails are too heavy."""
        from tfdp.noise.tails import absolute_moment

        return absolute_moment(self, power)

    @property
    def unit(self) -> float:
        """Half the interquartile range: a length to measure x in, whatever the tails are."""
        return float(self.upper_quantile(np.array(0.25)))

    def scaled(self, factor: float) -> Noise:
        """The family's member that is `factor` times this noise."""
        return dataclasses.replace(self, **{self._scale_field: self.size * factor})

    @property
    def size(self) -> float:
        """The value of `stddev` or `scale`, whichever the noise was given by."""
        return float(getattr(self, self._scale_field))

    @property
    def standard(self) -> Noise:
        """The family's member of size 1: this noise is `size` times that."""
        return dataclasses.replace(self, **{self._scale_field: 1.0})

    @property
    def _scale_field(self) -> str:
        for name in _SCALE_FIELDS:
            if getattr(self, name, None) is not None:
                return name
        raise ValueError(f"{self!r} has no scale: give its class a field called 'stddev' or 'scale'")

    def get_config(self) -> dict[str, object]:
        """The family's name as "type", and its parameters: plain JSON values."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {"type": type(self).__name__, **values}

    @staticmethod
    def from_config(config: dict[str, object]) -> Noise:
        """The noise whose `get_config` it is."""
        values = dict(config)
        kind = Noise.kinds.get(values.pop("type", None))  # type: ignore[arg-type]
        if kind is None:
            known = ", ".join(sorted(Noise.kinds))
            raise ValueError(
                f"no noise family is called {config.get('type')!r} (known: {known}): import the module that defines it"
            )
        return kind(**values)


def positive(name: str, value: object, advice: str) -> float:
    """`value` as a positive finite float, or an error that `advice` completes."""
    try:
        number = math.nan if isinstance(value, bool) or not isinstance(value, numbers.Real) else float(value)
    except OverflowError:
        raise ValueError(
            f"{name} must be a positive finite number, not an integer beyond all floats: {advice}"
        ) from None
    if not (math.isfinite(number) and number > 0):
        raise ValueError(f"{name} must be a positive finite number, not {value!r}: {advice}")
    return number
