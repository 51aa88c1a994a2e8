"""Random numbers of layers: dropout masks, noise, augmentation.

A layer of Keras draws with a seed that its ``SeedGenerator`` hands out. Those seeds are no secret: a user sets them, Keras draws
them from 10^9 values, files contain them. Private training needs draws that nobody knows, or an attacker would know each
record's mask, and one record more would shift the masks of all records after it.

So in a private pass every seed generator hands out a seed made of ``secret + (0, k)`` at the k-th call: TensorFlow's stateless
generator makes independent streams of different seeds. (In a loop, which is traced once, all rounds have the same seed.) A draw of shape ``[B, ...]`` then has independent entries, so the draws of a row
have the same distribution at every place and do not depend on any other row: rows are exchangeable (docs/proof.md, lemma 2).
That every random operation of the traced step takes its seed from the secret is checked on its graph (``gradients/traced.py``).
"""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator

import keras
import tensorflow as tf
from tensorflow.python.ops import gen_stateless_random_ops, gen_stateless_random_ops_v2

from tfdp.gradients.shadows import shadowed

SEED = tf.TensorSpec([2], tf.int64)  # the secret of one pass: two numbers, below 2^62 each
# Operations whose entries are independent of one another, given their parameters.
_DRAWING = {
    gen_stateless_random_ops_v2: (
        "stateless_random_uniform_v2",
        "stateless_random_uniform_int_v2",
        "stateless_random_uniform_full_int_v2",
        "stateless_random_normal_v2",
        "stateless_truncated_normal_v2",
        "stateless_random_gamma_v3",
    ),
    gen_stateless_random_ops: (
        "stateless_multinomial",
        "stateless_parameterized_truncated_normal",
        "stateless_random_binomial",
        "stateless_random_poisson",
    ),
}


@dataclasses.dataclass
class Drawn:
    """How many seeds were handed out, and by which generators of Keras where these used their own."""

    count: int = 0
    generators: dict[int, keras.random.SeedGenerator] = dataclasses.field(default_factory=dict)


@contextlib.contextmanager
def drawing_from(secret: tf.Tensor | None, row: tf.Tensor | None = None) -> Iterator[Drawn]:
    """Every seed generator, tracked by a layer or not, hands out seeds made of the secret; its own without one.

    ``row`` sets the streams of examples that are run one by one apart from each other.
    """
    drawn = Drawn()

    def next_seed(original: Callable, generator: keras.random.SeedGenerator, *args, **kwargs) -> tf.Tensor:
        drawn.count += 1
        if secret is None:
            drawn.generators[id(generator)] = generator
            return original(generator, *args, **kwargs)
        first = tf.zeros([], tf.int64) if row is None else 1 + tf.cast(row, tf.int64)
        number = secret + tf.stack([first, tf.constant(drawn.count, tf.int64)])
        # Scrambled, so that no seed is another one plus a small number.
        scrambled = tf.raw_ops.StatelessRandomGetKeyCounter(seed=number)[1]
        return tf.cast(tf.bitwise.right_shift(scrambled, tf.constant(2, tf.uint64)), generator.state.dtype)

    with shadowed(keras.random.SeedGenerator, "next", next_seed):
        yield drawn


@dataclasses.dataclass
class Lengths:
    """How many rows each draw has, as far as that can be told. ``shared`` says that one is certainly for all examples alike;
    ``hidden``, that one is made in a loop or function, where that can't be told."""

    known: list[tf.Tensor] = dataclasses.field(default_factory=list)
    shared: bool = False
    hidden: bool = False


@contextlib.contextmanager
def following(order: tf.Tensor) -> Iterator[Lengths]:
    """Random numbers move with their rows, for tests that move rows: row ``i`` of every draw of shape ``[B, ...]`` (or
    ``[B * k, ...]``) is what row ``order[i]`` would have been."""
    lengths, graph = Lengths(), order.graph
    rows = tf.size(order)
    back = tf.math.invert_permutation(order)

    def moved(values: tf.Tensor, order: tf.Tensor) -> tf.Tensor:
        if not tf.is_tensor(values) or not values.shape.rank or values.shape[0] is not None:
            return values  # drawn once for all rows
        count = tf.shape(values)[0]
        each, place = count // rows, tf.range(count)
        each = tf.maximum(each, 1)
        there = tf.gather(order, tf.minimum(place // each, rows - 1)) * each + place % each
        return tf.gather(values, tf.where(tf.equal(each * rows, count), there, place))

    def at_its_old_place(argument):  # a row's parameters go where its draw is made
        return moved(argument, back) if tf.is_tensor(argument) and argument.dtype.is_floating else argument

    def drawn(original: Callable, *args, **kwargs) -> tf.Tensor:
        args, kwargs = keras.tree.map_structure(at_its_old_place, (args, kwargs))
        values = original(*args, **kwargs)
        if values.graph is not graph:
            lengths.hidden = True
        elif not values.shape.rank or values.shape[0] is not None:
            lengths.shared = True
        else:
            lengths.known.append(tf.shape(values)[0])
        return moved(values, order)

    with contextlib.ExitStack() as shadows:
        for module, names in _DRAWING.items():
            for name in names:
                shadows.enter_context(shadowed(module, name, drawn))
        yield lengths
