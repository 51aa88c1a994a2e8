"""The workloads in TensorFlow Privacy, on Keras 2: the very builders that tfdp is measured with.

    registry             DPModel with a layer registry: norms layer by layer, then a second backward pass over weighted losses
    registry xla         the same compiled by XLA, DPModel's default
    model                DPModel without a registry: one gradient an example, by vectorized_map
    model xla            the same compiled by XLA
    optimizer            VectorizedDPKerasSGDOptimizer: a Jacobian of the losses

The registry knows dense, embedding, layer normalisation and attention layers. For `model xla` and the other methods that
can't run a while loop through vectorized_map, the LSTM is unrolled.
"""

import logging

import keras
import numpy as np
import tensorflow as tf
import tensorflow_privacy as tfp
from tensorflow_privacy.privacy.fast_gradient_clipping import layer_registry
from tensorflow_privacy.privacy.fast_gradient_clipping.registry_functions.layer_normalization import (
    layer_normalization_computation,
)
from tensorflow_privacy.privacy.fast_gradient_clipping.registry_functions.multi_head_attention import (
    multi_head_attention_layer_computation,
)

from benchmarks import networks
from benchmarks.peers import measure
from benchmarks.peers.measure import OutOfReach, Setting
from benchmarks.workloads import Workload

logging.getLogger("tensorflow").setLevel(logging.ERROR)


def known_layers() -> layer_registry.LayerRegistry:
    """All layers that TensorFlow Privacy has a rule for."""
    registry = layer_registry.make_default_layer_registry()
    registry.insert(keras.layers.LayerNormalization, layer_normalization_computation)
    registry.insert(keras.layers.MultiHeadAttention, multi_head_attention_layer_computation)
    return registry


def network(workload: Workload, method: str) -> keras.Model:
    """As Keras builds it; the LSTM unrolled where examples are mapped over."""
    if workload.kind == "lstm" and method != "plain":
        keras.utils.set_random_seed(0)
        return networks.lstm(unroll=True)
    return workload.model()


class KerasSide:
    def __init__(self, workload: Workload, method: str, setting: Setting):
        self.model = network(workload, method)
        loss = workload.loss()
        kind = {"sgd": keras.optimizers.SGD, "adam": keras.optimizers.Adam}[setting.optimizer]
        optimizer = kind(setting.rate)
        if method == "optimizer":
            optimizer = self._private_optimizer(setting)
            loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")
        elif method != "plain":
            self._make_private(method, setting)
        self.model.compile(optimizer=optimizer, loss=loss)
        step = self.model.make_train_function()
        lot = tf.data.Dataset.from_tensor_slices(workload.records(setting.lot)).batch(setting.lot)
        if "xla" in method or method == "optimizer":
            lot = tf.data.Dataset.from_tensors(workload.records(setting.lot))  # of known shape
        lots = iter(lot.cache().repeat())
        self._step = lambda: step(lots)

    @staticmethod
    def _private_optimizer(setting: Setting):
        kinds = {"sgd": tfp.VectorizedDPKerasSGDOptimizer, "adam": tfp.VectorizedDPKerasAdamOptimizer}
        return kinds[setting.optimizer](
            l2_norm_clip=setting.clip, noise_multiplier=setting.noise, learning_rate=setting.rate
        )

    def _make_private(self, method: str, setting: Setting) -> None:
        registry = known_layers() if method.startswith("registry") else None
        if registry is not None:
            unknown = {
                type(layer).__name__
                for layer in self.model.layers
                if layer.trainable_variables and not registry.is_elem(layer)
            }
            if unknown:
                raise OutOfReach(f"the registry has no rule for {', '.join(sorted(unknown))}")
        self.model = tfp.DPModel(
            l2_norm_clip=setting.clip,
            noise_multiplier=setting.noise,
            use_xla="xla" in method,
            layer_registry=registry,
            inputs=self.model.inputs if not isinstance(self.model.input, dict) else self.model.input,
            outputs=self.model.outputs[0],
        )
        if registry is not None and not self.model._enable_fast_peg_computation:
            raise OutOfReach("DPModel falls back to mapping over examples")

    def run(self, steps: int) -> None:
        logs = None
        for _ in range(steps):
            logs = self._step()
        for value in logs.values():
            np.asarray(value)

    def weights(self) -> np.ndarray:
        return _flat(self.model.trainable_variables)


def _flat(tensors) -> np.ndarray:
    return np.concatenate([np.ravel(tf.convert_to_tensor(t).numpy()) for t in tensors])


class TfPrivacy:
    library, module = "tf-privacy", "benchmarks.peers.run_tf_privacy"
    packages = ("tensorflow-privacy", "tensorflow-cpu", "keras", "numpy")
    methods = ("plain", "registry", "registry xla", "model", "model xla", "optimizer")

    def side(self, workload: Workload, method: str, setting: Setting) -> KerasSide:
        return KerasSide(workload, method, setting)

    def example_gradients(self, workload: Workload, method: str, rows: int) -> np.ndarray:
        model, loss = network(workload, method), workload.loss()
        x, y = workload.records(rows)
        found = []
        for i in range(rows):
            with tf.GradientTape() as tape:
                own = tf.nest.map_structure(lambda part, i=i: tf.constant(part[i : i + 1]), x)
                value = loss(y[i : i + 1], model(own, training=True))
            found.append(_flat(tape.gradient(value, model.trainable_variables)))
        return np.stack(found)


if __name__ == "__main__":
    measure.exit_with(TfPrivacy(), __doc__)
