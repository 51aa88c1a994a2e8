"""Noise on the records themselves, once and for all epochs: `dataset.apply(InputPerturbation(...))`, or on arrays."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from tfdp.accounting import checks, perturbation
from tfdp.accounting.analytic_gaussian import gaussian_stddev
from tfdp.accounting.gdp import mu_for
from tfdp.accounting.randomized_response import record_mu
from tfdp.data.perturbation import dataset as perturbed_dataset
from tfdp.data.perturbation import files, fingerprints
from tfdp.data.perturbation.claims import PerturbationStatement, PublishedClaim, Release, left_of, statement_of
from tfdp.data.perturbation.labels import RandomizedLabels
from tfdp.data.perturbation.leaves import as_record
from tfdp.data.perturbation.released_records import PerturbedRecords
from tfdp.data.perturbation.seeds import RecordSeeds
from tfdp.data.records import Records

_LEAST_STDDEV = 1e-30
_MEMORY_LIMIT = 2**30


class InputPerturbation:
    """Clips the features of every record and adds Gaussian noise that is fixed for that record (Kang et al. 2020).

    A record x becomes x * min(1, clip_norm / ||x||) + stddev * z, with the norm over all leaves of x together and z standard normal.
    z is a function of the secret key, the name and split of the data set, the record's number and the leaf: the same in every
    epoch, and in every process that has the key; independent from record to record. Drawing anew in each epoch would cost
    as many releases as there are epochs.

    Formal guarantee: `statement()`. For records replaced by another, mu = 2 clip_norm / stddev for the features, up to the noise's missing
    tails, against an adversary who cannot break the keyed hash; and whatever is done with them afterwards costs nothing more.

    | given to                          | what is a record, and its number                                            |
    |-----------------------------------|-----------------------------------------------------------------------------|
    | `dataset.apply(p)`                | an element of the data set, in its order: put it before shuffle and batch   |
    | the same with `batch_size=`       | a row of a batch; all batches but the last have batch_size rows             |
    | `p.on_arrays(x, y)`               | a row of the arrays                                                         |

    What comes out of a data set is kept in memory, up to `memory_limit`: after the first complete pass nothing of what comes before the
    perturbation runs any more, as with `cache()`. Beyond the limit, or where the size is not known, every pass reads and draws anew.

    Elements are x or (x, y), x of any nesting. Labels are untouched without `randomized_response`. Data without a stable order
    is refused: where shuffle() or repeat() before it is seen, at once; else where a record is not what it was in an
    earlier pass (which is all that can be seen of random augmentation, where it runs again), or was not in another data set that this
    process perturbed under the same key, name, split, noise and clip.

    Example:

    >>> perturb = tfdp.data.InputPerturbation.proven(epsilon=8.0, delta=1e-5, clip_norm=1.0)
    >>> train = tf.data.Dataset.from_tensor_slices((x, y)).apply(perturb).shuffle(10_000).batch(256)
    >>> model.fit(train, epochs=10)  # any optimizer
    >>> print(perturb.statement())

    Args:
        stddev: of the noise in each coordinate, in the units of the clipped features.
        clip_norm: the most a record's features may weigh, an l2 norm over all leaves; it must not come from the records.
        key: 16 to 64 secret bytes, such as `secrets.token_bytes(32)`, for one version of one data set. None draws one that no other
            process can have. It is in no file, repr or pickle, nor in the graph of the data set.
        name: of the data set.
        split: of it, "train" or another: two splits under one key need different names for it.
        randomized_response: the probability with which a label is drawn anew, from all public classes.
        classes: how many there are, for labels 0, 1, ...; or all of them, such as (-1, 1).
        batch_size: only for a data set of batches: their (largest) number of records.
        memory_limit: in bytes, for each data set that this is applied to; 0 keeps nothing.

    Raises:
        ValueError: a bad argument; later, records that can't be perturbed.
    """

    def __init__(
        self,
        stddev: float,
        clip_norm: float = 1.0,
        key: bytes | None = None,
        *,
        name: str = "data",
        split: str = "train",
        randomized_response: float = 0.0,
        classes: int | Sequence[int] | None = None,
        batch_size: int | None = None,
        memory_limit: int = _MEMORY_LIMIT,
    ):
        stddev = checks.non_negative("stddev", stddev, "write the noise's standard deviation, such as 2.0")
        clip_norm = checks.positive("clip_norm", clip_norm, "write the most a record's features may weigh, such as 1.0")
        if 0 < stddev < _LEAST_STDDEV:
            raise ValueError(f"stddev {stddev!r} is too small to compute with: write 0 for no noise.")
        for argument, value in (("name", name), ("split", split)):
            if not isinstance(value, str):
                raise ValueError(f"{argument} must be a string, not {value!r}: it says which data set the key is for.")
        self._release = Release(stddev, clip_norm, _labels(randomized_response, classes))
        self._seeds = RecordSeeds(key, (name, split, stddev.hex(), clip_norm.hex()))
        self._fingerprints = fingerprints.Fingerprints() if key is None else fingerprints.shared(self._seeds.name())
        self._forms: dict[str, PerturbedRecords] = {}
        self._labelled = False
        self._delta: float | None = None
        self._memory_limit = checks.count(
            "memory_limit", memory_limit, "write how many bytes of records may be kept, such as 2**30", at_least=0
        )
        self._batch_size = batch_size
        if batch_size is not None:
            advice = "write how many records a batch of the data set has, or leave it out if elements are records"
            self._batch_size = checks.count("batch_size", batch_size, advice, at_least=1)

    @classmethod
    def proven(cls, epsilon: float, delta: float, clip_norm: float = 1.0, key: bytes | None = None, **others: Any):
        """With the least noise that is proven to be (epsilon, delta)-differentially private.

        The claim is about the features; with `randomized_response=` about features and label together. It takes what
        `InputPerturbation` takes. A local guarantee is strong, and its noise is large: at epsilon 8 and delta 1e-5 it is 1.2 times
        the clip in every coordinate.
        """
        clip_norm = checks.positive("clip_norm", clip_norm, "write the most a record's features may weigh, such as 1.0")
        epsilon, left = checks.target_epsilon(epsilon), left_of(checks.delta(delta))
        labels = _labels(others.get("randomized_response", 0.0), others.get("classes"))
        mu = mu_for(epsilon, left) if labels is None else record_mu(epsilon, left, labels.probability, labels.count)
        stddev = 2 * clip_norm / mu if mu else math.inf
        _check_size(stddev, f"epsilon {epsilon:g} at delta {delta:g} with clip_norm {clip_norm:g}")
        if labels is None:
            stddev = gaussian_stddev(epsilon, left, 2 * clip_norm)
        made = cls(stddev, clip_norm, key, **others)
        if made._release.tails > delta - left:
            raise ValueError(
                f"epsilon {epsilon:g} at delta {delta:g} asks for so little noise that its end, at 10.2 standard deviations, shows. "
                "Write a smaller epsilon or a larger delta."
            )
        made._delta = delta
        return made

    @classmethod
    def as_published(
        cls,
        epsilon: float,
        delta: float,
        steps: int,
        n: int,
        lipschitz: float,
        strong_convexity: float | None = None,
        *,
        pl: bool = False,
        sampling_rate: float | None = None,
        constant: float = 1.0,
        key: bytes | None = None,
        **others: Any,
    ):
        """With the noise of Kang et al. 2020, for features clipped to 1, as both papers take them to be.

        The papers' (epsilon, delta) of the trained model goes into the statement as published, never as proven: their noise is
        small, and what it proves of the features stands beside it.

        Args:
            epsilon: the papers' claim of the trained model.
            delta: the same.
            steps: T, gradient steps.
            n: the number of records.
            lipschitz: G, the loss's Lipschitz constant in the weights.
            strong_convexity: Delta, for eq. 9 of "Input Perturbation".
            pl: True for eq. 12, for losses with the Polyak-Lojasiewicz condition.
            sampling_rate: q, for eq. 10 of "Data Perturbation", algorithm 1.
            constant: c, which the papers don't give.
            key: as for `InputPerturbation`; so are the others.
        """
        checks.true_or_false("pl", pl)
        if (strong_convexity is not None) + pl + (sampling_rate is not None) != 1:
            raise ValueError(
                "Give exactly one of strong_convexity= (eq. 9), pl=True (eq. 12) and sampling_rate= (eq. 10): each has a formula of "
                "its own."
            )
        n = checks.count("n", n, "write the number of records", at_least=2)
        if sampling_rate is not None:
            stddev = perturbation.data_noise(epsilon, delta, steps, sampling_rate, lipschitz, constant)
            where, reason = "Kang et al. 2020, data perturbation, theorem 1, eq. 10", perturbation.DATA_REASON
        else:
            stddev = perturbation.input_noise(epsilon, delta, steps, n, lipschitz, strong_convexity, constant)
            where = f"Kang et al. 2020, input perturbation, {'theorem 3, eq. 12' if pl else 'theorem 1, eq. 9'}"
            reason = perturbation.INPUT_REASON
        _check_size(stddev, "The formula, with these epsilon, delta, steps, lipschitz and constant,")
        made = cls(stddev, 1.0, key, **others)
        how = f"{where}: {steps:,} steps on {n:,} records, Lipschitz constant {lipschitz:g}, c = {constant:g}"
        release = made._release
        published = PublishedClaim(epsilon, delta, how, reason)
        made._release, made._delta = Release(release.stddev, release.clip_norm, release.labels, published), delta
        return made

    @property
    def stddev(self) -> float:
        return self._release.stddev

    @property
    def clip_norm(self) -> float:
        return self._release.clip_norm

    def __call__(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
        """The same data set with perturbed records, in the same order; for `dataset.apply`."""
        if not isinstance(dataset, tf.data.Dataset):
            raise ValueError(
                f"A tf.data.Dataset is perturbed here, not a {type(dataset).__name__}: arrays go to on_arrays(x, y)."
            )
        return perturbed_dataset.perturbed(dataset, self._records, self._batch_size, self._memory_limit)

    def on_arrays(self, x: Any, y: Any = None) -> Any:
        """x, or (x, y), perturbed: numpy arrays in the structures that were given.

        Takes what `fit` takes: arrays, tensors, nested structures of them, memory maps, sources of records. Like `fit`, it reads
        floating-point numbers as `keras.config.floatx()`.
        """
        records = Records(x, y)
        perturbed = self._records(records.spec).in_memory(records)
        return perturbed[0] if len(perturbed) == 1 else perturbed

    def write(self, folder: str | os.PathLike, x: Any, y: Any = None, *, delta: float | None = None) -> Path:
        """Writes D_priv of the papers: the perturbed records, and the statement beside them.

        One .npy file for each leaf of x and y, such as `x.npy` and `y.npy`, written block by block; `statement.txt` and
        `statement.json`. Of the key nothing is written. The folder must be new or empty.
        """
        records = Records(x, y)
        statement = self.statement(delta, labelled=self._labelled or len(records.spec) > 1)
        return files.write(Path(folder), self._records(records.spec), records, statement)

    def statement(self, delta: float | None = None, *, labelled: bool = True) -> PerturbationStatement:
        """What is proven of the released records, and what is not.

        Args:
            delta: by default the one of `proven` or `as_published`.
            labelled: False if what was released has no labels; refused where some had.
        """
        if self._labelled and not labelled:
            raise ValueError(
                "Records with labels were perturbed here, and the statement must speak of them: leave labelled=False out, or use an "
                "InputPerturbation of its own for records without labels."
            )
        if delta is None and self._delta is None:
            raise ValueError("Give delta=, a probability well below 1 / (number of records), such as 1e-5.")
        return statement_of(self._release, checks.delta(self._delta if delta is None else delta), labelled)

    def _records(self, spec: tuple[Any, ...]) -> PerturbedRecords:
        """Made once for each form of records, because it is compiled."""
        form = repr(spec)
        if form not in self._forms:
            self._forms[form] = PerturbedRecords(spec, self._release, self._seeds, self._fingerprints)
            self._labelled |= len(as_record(spec)) > 1
        return self._forms[form]

    def __reduce__(self):
        return self._seeds.__reduce__()

    def __repr__(self) -> str:
        return f"InputPerturbation(stddev={self.stddev:g}, clip_norm={self.clip_norm:g})"


def _check_size(stddev: float, asked_by: str) -> None:
    if not _LEAST_STDDEV <= stddev < math.inf:
        raise ValueError(
            f"{asked_by} asks for noise of standard deviation {stddev:g}, which can't be computed with: write numbers that are less "
            "extreme."
        )


def _labels(probability: float, classes: int | Sequence[int] | None) -> RandomizedLabels | None:
    advice = "write the share of labels to draw anew, such as 0.2"
    if checks.non_negative("randomized_response", probability, advice) == 0 and classes is None:
        return None
    if classes is None:
        raise ValueError(
            "randomized_response= needs classes=: how many labels there are, or all of them. They are public."
        )
    return RandomizedLabels(probability, classes)
