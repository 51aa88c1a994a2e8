"""Several devices or machines (tf.distribute): what they are given of a lot, and what is refused before any weight changes."""

import contextlib
import hashlib
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfdp.data import DeclaredDataset, PoissonBatches
from tfdp.gradients.layer_tree import instance_attribute, map_tensors
from tfdp.optimizers.private_optimizer import PrivateOptimizer

_BUILD_INSIDE = (
    "Make model and optimizer, and call compile, inside `with strategy.scope():`; fit may be called outside of it."
)


def strategy_of(model: keras.Model, optimizer: PrivateOptimizer) -> tf.distribute.Strategy | None:
    """The strategy that model and optimizer were made for; None for one device.

    Raises:
        ValueError: it is of a kind that private training does not know, or the two were not made for the same one.
    """
    own, others = model._distribute_strategy, {model.distribute_strategy}
    others |= {part._distribution_strategy for part in (optimizer, optimizer.inner_optimizer)}
    if others != {own} and any(_is_distributed(strategy) for strategy in (own, *others)):
        raise ValueError(
            f"The model {model.name!r} and its optimizer were not made in the scope of one tf.distribute strategy. {_BUILD_INSIDE}"
        )
    if not _is_distributed(own):
        return None
    if type(own) not in (tf.distribute.MirroredStrategy, tf.distribute.MultiWorkerMirroredStrategy):
        raise ValueError(
            f"Private training under {type(own).__name__} is not available: take tf.distribute.MirroredStrategy (devices of one "
            "machine) or tf.distribute.MultiWorkerMirroredStrategy."
        )
    outside = [v.path for v in model.variables if not own.extended.variable_created_in_scope(v.value)]
    if outside:
        raise ValueError(
            f"The weights {outside} of the model {model.name!r} were made outside of the strategy's scope. {_BUILD_INSIDE}"
        )
    return own


def replicas_of(model: keras.Model, optimizer: PrivateOptimizer) -> "Replicas | None":
    """The replicas that the model was made for; None for one device.

    Raises:
        ValueError: the strategy, or the optimizer's mechanism, does not go with several replicas.
    """
    strategy = strategy_of(model, optimizer)
    if strategy is None:
        return None
    mechanism = optimizer.mechanism
    if mechanism.full_gradient is not None:
        raise ValueError(
            "direction='full_gradient' looks at all records between two steps, which is done on one device alone. Under "
            f"{type(strategy).__name__} take direction='noisy_gradient'."
        )
    if not getattr(mechanism, "works_on_parts", False):
        raise ValueError(
            f"This {type(mechanism).__name__} needs the whole lot's gradients, or their sum before the noise, on one device. Train "
            f"without {type(strategy).__name__}, or take a mechanism that works on parts of a lot: NoisySGD, NoisyAdam or "
            "NoisyAdagrad, AdaClip, directional noise without as_published, encoded gradients with microbatch_size=1."
        )
    return Replicas(strategy)


class Replicas:
    """The replicas of a strategy, in one process or in several.

    Attributes:
        strategy: what runs them.
        workers: the number of processes.
        worker: the number of this one; 0 is the chief.
    """

    def __init__(self, strategy: tf.distribute.Strategy):
        self.strategy = strategy
        self.worker, self.workers = _place_of(strategy)

    def check_executions(self, model: keras.Model, steps_per_epoch: int) -> None:
        """Raises ValueError where an execution of several steps would reach into the next epoch."""
        if steps_per_epoch % model.steps_per_execution:
            raise ValueError(
                f"Under {type(self.strategy).__name__} an epoch must be made of whole executions, but its {steps_per_epoch} steps are not a "
                f"multiple of steps_per_execution={model.steps_per_execution}. Give fit steps_per_epoch=, or compile with another."
            )

    def share_of(self, lots: PoissonBatches | DeclaredDataset) -> PoissonBatches | DeclaredDataset:
        """The lots of this worker: of one worker all, of several those of every ``workers``-th record.

        Raises:
            ValueError: records could enter a lot through two workers.
        """
        if self.workers == 1:
            return lots
        if isinstance(lots, DeclaredDataset):
            raise ValueError(
                "Of a declared dataset it can't be seen which records each worker is given, and one that two workers are given enters "
                "a step twice. Give fit, on every worker, the same arrays, random-access source or tfdp.data.PoissonBatches(...) of "
                "all records: each worker then draws from its own share."
            )
        if lots.part == (0, 1):
            return lots.shard(self.worker, self.workers)
        if lots.part != (self.worker, self.workers):
            raise ValueError(
                f"fit was given shard {lots.part} on worker {self.worker} of {self.workers}: a record could enter a step through two "
                f"workers, or through none. Give fit the lots of all records, or shard({self.worker}, {self.workers})."
            )
        return lots

    def parts(self, lots: tf.data.Dataset, equal: bool) -> tf.distribute.DistributedDataset:
        """Each lot of this worker dealt out to its replicas, consecutive rows to each.

        Parts may be empty. If ``equal``, all of a lot have the same length instead: what is missing in the last ones are
        copies of a row that are not present.
        """
        local = self.strategy.num_replicas_in_sync // self.workers

        @tf.autograph.experimental.do_not_convert
        def parts_of(record: Any, present: tf.Tensor) -> tf.data.Dataset:
            return _dealt(record, present, local, equal)

        # Of a data set that may end, all replicas would ask each other before every step whether it did.
        endless = tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY)
        dealt = lots.flat_map(parts_of).apply(endless).prefetch(local)
        return self.strategy.distribute_datasets_from_function(lambda context: dealt)

    @contextlib.contextmanager
    def fitting(self, model: keras.Model) -> Iterator[None]:
        """While Keras's fit runs: it would build the model on the mean of the replicas' rows, of which there may be none, and
        between workers it can't reduce what validation logs."""
        test_step = model.test_step
        with (
            instance_attribute(model, "_maybe_symbolic_build", lambda **arguments: None),
            instance_attribute(model, "test_step", lambda data: self.logs(test_step(data))),
        ):
            yield

    def logs(self, logs: dict) -> dict:
        """As Keras reduces them: between workers only what has a first dimension."""
        return logs if self.workers == 1 else keras.tree.map_structure(lambda value: tf.reshape(value, [1]), logs)

    def check_agreement(self, **stated: bytes) -> None:
        """Raises ValueError on every worker unless all state the same."""
        if self.workers == 1:
            return
        digests = [int.from_bytes(hashlib.sha256(part).digest()[:4], "little") for part in stated.values()]
        table = np.zeros([self.workers, len(stated)], np.int64)
        table[self.worker] = digests
        strategy = self.strategy

        @tf.function(autograph=False)
        def of_all() -> tf.Tensor:
            return strategy.reduce("SUM", strategy.run(lambda: tf.constant(table)), axis=None)

        columns = zip(stated, of_all().numpy().T, strict=True)
        different = [name for name, column in columns if len(set(column.tolist())) > 1]
        if different:
            raise ValueError(
                f"The workers differ in their {', '.join(different)}, so that the steps of one are not those of the other. Run the same "
                "program on all of them, with the same records in the same order; to go on after a worker was lost, let all begin from "
                "one worker's backup."
            )


def _place_of(strategy: tf.distribute.Strategy) -> tuple[int, int]:
    """The number of this process, and how many there are."""
    if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
        return 0, 1
    cluster = strategy.cluster_resolver.cluster_spec().as_dict()
    chiefs = len(cluster.get("chief", ()))
    workers = max(1, chiefs + len(cluster.get("worker", ())))
    resolver = strategy.cluster_resolver
    return (resolver.task_id or 0) + (chiefs if resolver.task_type == "worker" else 0), workers


def _dealt(record: Any, present: tf.Tensor, parts: int, equal: bool) -> tf.data.Dataset:
    rows = tf.shape(present)[0]
    length = tf.math.floordiv(rows + parts - 1, parts)

    @tf.autograph.experimental.do_not_convert
    def part(number: tf.Tensor) -> Any:
        start = tf.cast(number, tf.int32) * length
        places = start + tf.range(length)
        if not equal:
            places = places[: tf.maximum(rows - start, 0)]
        shown = tf.minimum(places, rows - 1)
        found, there = map_tensors(lambda t: tf.gather(t, shown), (record, present))
        return found, there & (places < rows)

    return tf.data.Dataset.range(parts).map(part)


def _is_distributed(strategy: tf.distribute.Strategy | None) -> bool:
    return strategy is not None and type(strategy).__name__ != "_DefaultDistributionStrategy"
