"""How much memory a pass over a lot goes through."""

import tensorflow as tf

LARGE = 2**30  # bytes; about a quarter of that is alive at once
MANY_WEIGHTS = 8  # bytes of a pass for each byte of weights


def bytes_of_an_example(graph: tf.Graph) -> int:
    """Of all tensors of a traced pass that have a row for each example, as far as their shapes are known."""
    tensors = [tensor for operation in graph.get_operations() for tensor in operation.outputs]
    sizes = [
        (tensor.shape[1:].num_elements() or 0) * tensor.dtype.size
        for tensor in tensors
        if tensor.dtype.is_floating and tensor.shape.rank and tensor.shape[0] is None
    ]
    return sum(sizes)


def is_large(graph: tf.Graph, lot_size: int, weights: int) -> bool:
    """Whether a pass over so many examples of a model with so many weights is worth cutting in two: what each part costs by itself
    (starting operations, adding up the weights' gradients) is then little beside the pass."""
    size = lot_size * bytes_of_an_example(graph)
    return size >= LARGE and size >= MANY_WEIGHTS * 4 * weights
