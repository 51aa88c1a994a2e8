"""Low-rank adaptation (Hu et al. 2022, arXiv:2106.09685): ``enable_lora`` on Dense, EinsumDense, Embedding and convolutions.

With the kernel ``W + s A B``, W frozen, the layer does what two of its kind do one after the other: the input times A, that times B.
Either has the gradient of such a product, through the few columns between them. The kernel's own is never built.
"""

import keras
import tensorflow as tf

from tfdp.gradients.factored import OuterSum, Rows
from tfdp.gradients.rules.convolution import channels_last, convolution_gradient, convolved
from tfdp.gradients.rules.dense import bias_gradient, labels_of, places, product
from tfdp.gradients.rules.embedding import ids_and_gradients
from tfdp.gradients.rules.registry import at_output, at_pre_activation, rule

layers = keras.layers


def _factors(layer, a: keras.Variable, b: keras.Variable) -> tuple[tf.Tensor, tf.Tensor]:
    """``s A`` and ``s B``: either gradient has the factor s once."""
    scale = layer.lora_alpha / layer.lora_rank
    return tuple(tf.cast(v, tf.float32) * scale for v in (a, b))


def _with_bias(layer, gradients: list, d: tf.Tensor) -> list:
    return gradients if layer.bias is None else [*gradients, bias_gradient(layer.bias, d)]


@rule(layers.Dense, tap=at_pre_activation, adapted=True)
def dense_lora(call, d):
    layer, x, d = call.layer, tf.cast(call.inputs, tf.float32), tf.cast(d[0], tf.float32)
    a, b = layer.lora_kernel_a, layer.lora_kernel_b
    scaled_a, scaled_b = _factors(layer, a, b)
    back, forth = _times(d, tf.transpose(scaled_b)), _times(x, scaled_a)
    gradients = [(a, OuterSum(places(x), places(back), a.shape)), (b, OuterSum(places(forth), places(d), b.shape))]
    return _with_bias(layer, gradients, d)


def _times(values: tf.Tensor, matrix: tf.Tensor) -> tf.Tensor:
    return tf.tensordot(values, matrix, 1)


def _last_column_is_put_out(layer: keras.layers.EinsumDense) -> bool:
    if "..." in layer.equation:
        return False
    inputs, kernel, output = labels_of(layer.equation)
    return kernel[-1] in output and kernel[-1] not in inputs and "R" not in inputs + output


@rule(layers.EinsumDense, tap=at_pre_activation, applies=_last_column_is_put_out, adapted=True)
def einsum_dense_lora(call, d):
    """The kernel's last label, one of its columns, is R between the two products."""
    layer, x, d = call.layer, tf.cast(call.inputs, tf.float32), tf.cast(d[0], tf.float32)
    a, b = layer.lora_kernel_a, layer.lora_kernel_b
    scaled_a, scaled_b = _factors(layer, a, b)
    inputs, kernel, output = labels_of(layer.equation)
    column, inner_kernel, between = kernel[-1], kernel[:-1] + "R", output.replace(kernel[-1], "R")
    back = tf.einsum(f"{output},R{column}->{between}", d, scaled_b)
    forth = tf.einsum(f"{inputs},{inner_kernel}->{between}", x, scaled_a)
    gradients = [
        (a, product(x, back, (inputs, inner_kernel, between), a.shape)),
        (b, product(forth, d, (between, f"R{column}", output), b.shape)),
    ]
    return _with_bias(layer, gradients, d)


@rule(layers.Embedding, tap=at_output, adapted=True)
def embedding_lora(call, d):
    layer = call.layer
    a, b = layer.lora_embeddings_a, layer.lora_embeddings_b
    scaled_a, scaled_b = _factors(layer, a, b)
    ids, d = ids_and_gradients(call.inputs, d[0], layer.input_dim, layer.output_dim)
    d = tf.cast(d, tf.float32)
    return [
        (a, Rows(ids, _times(d, tf.transpose(scaled_b)), a.shape)),
        (b, OuterSum(tf.gather(scaled_a, ids)[:, None], d[:, None], b.shape)),
    ]


@rule(layers.Conv1D, layers.Conv2D, layers.Conv3D, tap=at_pre_activation, adapted=True)
def convolution_lora(call, d):
    layer, d = call.layer, tf.cast(channels_last(call.layer, d[0]), tf.float32)
    a, b = layer.lora_kernel_a, layer.lora_kernel_b
    scaled_a, scaled_b = _factors(layer, a, b)
    x = tf.cast(call.inputs, tf.float32)
    forth = convolved(x, layer, scaled_a)
    gradients = [
        (a, convolution_gradient(x, _times(d, tf.transpose(scaled_b)), layer, a)),
        (b, OuterSum(places(forth), places(d), b.shape)),
    ]
    return _with_bias(layer, gradients, d)
