"""The transformations of a tf.data pipeline, as TensorFlow's Python objects keep them.

TensorFlow keeps the inputs of a dataset, and the functions that it calls, in private attributes. Where they are missing
nothing is seen; nothing breaks.
"""

import re
from collections.abc import Iterator

import tensorflow as tf


def ways_of(dataset: tf.data.Dataset) -> Iterator[list[tf.data.Dataset]]:
    """Every way from the dataset to a source."""
    below = inputs_of(dataset)
    if not below:
        yield [dataset]
    for source in below:
        for way in ways_of(source):
            yield [dataset, *way]


def nodes_of(dataset: tf.data.Dataset) -> list[tf.data.Dataset]:
    """All transformations and sources, each once."""
    return list({id(node): node for way in ways_of(dataset) for node in way}.values())


def inputs_of(dataset: tf.data.Dataset) -> list[tf.data.Dataset]:
    try:
        return list(dataset._inputs())
    except (AttributeError, TypeError, NotImplementedError):
        one = getattr(dataset, "_input_dataset", None)
        return [] if one is None else [one]


def kind_of(dataset: tf.data.Dataset) -> str:
    """`_ParallelBatchDataset` -> `ParallelBatch`."""
    return re.fullmatch(r"_?(.*?)(Dataset)?(V[12])?(Adapter)?", type(dataset).__name__).group(1)


_WRITTEN = {
    "Interleave": "interleave()",
    "ParallelInterleave": "interleave()",
    "Concatenate": "concatenate()",
    "Snapshot": "snapshot()",
    "Load": "load()",
    "Unbatch": "unbatch()",
    "Filter": "filter()",
    "TFRecord": "TFRecordDataset",
    "TextLine": "TextLineDataset",
    "FixedLengthRecord": "FixedLengthRecordDataset",
}


def written(dataset: tf.data.Dataset) -> str:
    """What the user wrote to make this part of a pipeline."""
    kind = kind_of(dataset)
    if kind == "FlatMap":
        graph = function_graph(dataset)
        generates = graph is not None and any(node.type == "GeneratorDataset" for node in graph.get_operations())
        return "from_generator()" if generates else "flat_map()"
    return _WRITTEN.get(kind, f"the part called {kind}")


def cardinality_of(dataset: tf.data.Dataset) -> int:
    return int(dataset.cardinality())


def is_once(repeat: tf.data.Dataset) -> bool:
    try:
        return int(tf.get_static_value(repeat._count)) == 1
    except (AttributeError, TypeError):
        return False


def is_constant(repeat: tf.data.Dataset) -> bool:
    """Whether it brings one tensor again and again: a zip() with it is as good as capturing the tensor."""
    return kind_of(repeat) == "Repeat" and [kind_of(node) for node in inputs_of(repeat)] == ["Tensor"]


def function_graph(dataset: tf.data.Dataset) -> tf.Graph | None:
    """The graph of the function of a map(), flat_map(), interleave() or scan(); None if it can't be seen."""
    for name in ("_map_func", "_scan_func"):
        graph = getattr(getattr(getattr(dataset, name, None), "function", None), "graph", None)
        if isinstance(graph, tf.Graph) and hasattr(graph, "captures"):
            return graph
    return None
