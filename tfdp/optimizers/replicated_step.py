"""The private step on several replicas: each bounds its part of the lot, the parts are summed, and one release moves all."""

import contextlib
from typing import Any

import numpy as np
import tensorflow as tf
from keras.src.backend.common import global_state
from keras.src.random import seed_generator

from tfdp.gradients import MixesExamples
from tfdp.gradients.layer_tree import all_layers, instance_attribute
from tfdp.mechanisms import GaussianMechanism
from tfdp.mechanisms.gaussian import if_any
from tfdp.optimizers.core import Core
from tfdp.optimizers.step import PrivateStep


class ReplicatedStep(PrivateStep):
    """A ``PrivateStep`` in a strategy's replicas (``tf.distribute.Strategy.run``).

    Formal guarantee: let S_k be the sum that the mechanism's ``bounded_sum`` returns of replica k's part of the lot, and Z one
    draw of the mechanism's noise, made on the first replica alone. What is released is S_1 + ... + S_K + Z: the noised sum of the
    whole lot, as on one device, for a record is in one part at most and is bounded there by itself. It is divided by the expected
    size of the whole lot, counted as one step, and all replicas' weights move by this one release.

    Nothing is released unless every replica gave its part: a limit of steps on one worker ends the steps of all.

    Summing is one reduction of as many numbers as there are weights, whatever the lot, and one of two counts. What comes after
    it happens once in a process, on its first device.
    """

    def __init__(self, *arguments: Any):
        self._shared_seeds = seed_generator.global_seed_generator()
        super().__init__(*arguments)

    def __call__(self, data: Any) -> dict:
        self._share_seeds()
        return super().__call__(data)

    def _share_seeds(self) -> None:
        # Keras keeps one generator for each thread, and each replica is traced in a thread of its own.
        global_state.set_global_attribute(seed_generator.GLOBAL_SEED_GENERATOR, self._shared_seeds)

    @property
    def _cut(self) -> str:
        return "Training on several devices"

    def _new_core(self, mechanism: GaussianMechanism) -> "_CoreOfReplica":
        """One for each replica of this process: each reads the weights' copies on its own device."""
        cores = self._cores_of_replicas(mechanism)
        metrics = [metric for layer in all_layers(self.model) for metric in layer._metrics]
        with contextlib.ExitStack() as shadows:
            for metric in metrics:
                # Replicas write metrics in another way, and nothing that a core puts out depends on those.
                shadows.enter_context(instance_attribute(metric, "update_state", lambda *arguments, **named: None))
            compared = self._cores_of_replicas(mechanism) if metrics else cores
            proven = super()._new_core(mechanism)
        if compared.digests() != {proven.digest()}:
            raise MixesExamples(
                f"The model {self.model.name!r} does something else on several devices than on one: a layer or loss asks which replica it "
                "runs on, or talks to the others. A record's replica depends on the records before it, so that these would change its "
                "gradient. Let layers do the same on all devices."
            )
        return cores

    def _cores_of_replicas(self, mechanism: GaussianMechanism) -> "_CoreOfReplica":
        cores, ellipsoid = _CoreOfReplica(), self._ellipsoid_spec(mechanism)

        def on_replica() -> None:
            self._share_seeds()
            cores.add(self._core_of(mechanism).traced(self.record_spec, ellipsoid))

        run = self.model.distribute_strategy.run
        tf.function(lambda: run(on_replica), autograph=False).get_concrete_function()
        return cores

    def _take_if_allowed(self, record, present) -> None:
        context, replica = tf.distribute.get_replica_context(), _replica()
        # No branch may hold what replicas do together: the part comes from one, the release goes into another.
        may_step = self.optimizer.book.may_step()
        part = tf.cond(may_step, lambda: self._part_of_sum(record, present, replica == 0), self._no_part)
        context.merge_call(self._release_together, args=part)

    def _part_of_sum(self, record, present, draws_noise: bool) -> tuple[tf.Tensor, tf.Tensor]:
        """This replica's part of the noised sum, as one vector; how many gradients were not finite, and that this is a part."""
        ellipsoid = self.mechanism.ellipsoid(self.optimizer.state_of_mechanism)
        sums, not_finite = self._sums(record, present, ellipsoid)
        if draws_noise:
            sums = self.mechanism.noised(sums, self.optimizer.generator, *if_any(ellipsoid))
        return tf.concat([tf.reshape(part, [-1]) for part in sums], 0), tf.stack([not_finite, 1])

    def _no_part(self) -> tuple[tf.Tensor, tf.Tensor]:
        size = sum(v.shape.num_elements() for v in self.trained)
        return tf.zeros([size], self.mechanism.sum_dtype), tf.zeros([2], tf.int64)

    def _release_together(self, strategy: tf.distribute.Strategy, part, counts) -> None:
        with tf.device(strategy.extended.worker_devices[0]):
            total = strategy.reduce("SUM", part, axis=None)
            not_finite, parts = tf.unstack(strategy.reduce("SUM", counts, axis=None))
            # Where one replica refused (a budget on one worker alone) a part is missing, and the noise may be in that one.
            complete = tf.equal(parts, strategy.num_replicas_in_sync)
            # Else Keras's optimizer would ask for the merge that this is.
            with instance_attribute(strategy.extended, "_use_merge_call", lambda: False):
                tf.cond(complete, lambda: self._release_sum(total, not_finite), lambda: None)

    def _release_sum(self, total: tf.Tensor, not_finite: tf.Tensor) -> None:
        state = self.optimizer.state_of_mechanism
        shapes = [v.shape for v in self.trained]
        parts = tf.split(total, [shape.num_elements() for shape in shapes])
        sums = [tf.reshape(part, shape) for part, shape in zip(parts, shapes, strict=True)]
        self._release(state, sums, self.mechanism.ellipsoid(state), not_finite, None)


class _CoreOfReplica:
    """The core of the replica that is traced."""

    def __init__(self):
        self._cores: dict[int, Core] = {}

    def add(self, core: Core) -> None:
        self._cores[_replica()] = core

    def digests(self) -> set[str]:
        return {core.digest() for core in self._cores.values()}

    def is_same_as(self, other: "_CoreOfReplica") -> bool:
        """Whether each replica's core is the same as that replica's in the other."""
        both = self._cores.keys() == other._cores.keys()
        return both and all(core.is_same_as(other._cores[replica]) for replica, core in self._cores.items())

    def untrained_values(self) -> list[np.ndarray]:
        return [value for core in self._cores.values() for value in core.untrained_values()]

    def __call__(self, *arguments: Any) -> Any:
        return self._cores[_replica()](*arguments)

    @property
    def arguments_and_results(self) -> tuple[Any, Any, Any]:
        return next(iter(self._cores.values())).arguments_and_results


def _replica() -> int:
    replica = tf.get_static_value(tf.distribute.get_replica_context().replica_id_in_sync_group)
    if replica is None:
        raise RuntimeError("Which replica is traced can't be seen, so that none would draw the noise.")
    return int(replica)
