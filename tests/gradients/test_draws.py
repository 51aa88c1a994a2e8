"""Random numbers of layers: from a secret, each example's own, and exchangeable.

Masks used to come from Keras's seeds, which are public, and to belong to places of the lot: with one record less all those
after it had another record's mask, and the sum moved by many clips.
"""

from collections.abc import Callable

import h5py
import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops

import tfdp
from tests.brute_force import flat_weights
from tests.gradients.neighbours import ROUNDING, bounded_sum_of, moves, proved
from tfdp.gradients import lot_gradients
from tfdp.gradients.layer_tree import seed_generators

SIZE = 8
RANDOM = np.random.default_rng(3)
X = RANDOM.normal(size=(SIZE, 6)).astype("float32")
Y = RANDOM.normal(size=(SIZE, 1)).astype("float32")
IMAGES = RANDOM.normal(size=(SIZE, 8, 8, 3)).astype("float32")
FAINT = 1e-5  # noise that leaves the sum to be seen
GLOBAL = keras.random.SeedGenerator(5)
OF_TENSORFLOW = tf.random.Generator.from_seed(1)


def compiled(model: keras.Model, noise: float = FAINT, loss="mse", noise_seed=None, **arguments) -> keras.Model:
    optimizer = tfdp.NoisySGD(1.0, l2_norm_clip=1.0, noise_multiplier=noise, noise_seed=noise_seed)
    model.compile(optimizer=optimizer, loss=loss, **arguments)
    return model


def stack(*parts, shape=(6,)) -> keras.Model:
    return keras.Sequential([keras.Input(shape), *parts, layers.Dense(1, kernel_initializer="ones")])


def fit(model: keras.Model, x=X, y=Y):
    """One step, with every record."""
    return model.fit(x, y, batch_size=len(y), epochs=1, verbose=0)


def set_seeds(model: keras.Model, seed: int) -> None:
    for generator in seed_generators(model):
        generator.state.assign(np.array([seed, 0], "uint32"))


class Draws(layers.Layer):
    """A layer that does what it is told, in training alone."""

    def __init__(self, draw: Callable, seeds=None, **kwargs):
        super().__init__(**kwargs)
        self.draw, self.seeds = draw, keras.random.SeedGenerator(7) if seeds is None else seeds

    def call(self, x, training=None):
        return self.draw(self, x) if training else x


def drawing(draw: Callable, **arguments) -> Draws:
    return Draws(draw, name="leaky", **arguments)


def normal_of(generator, x):
    return x + keras.random.normal(ops.shape(x), seed=generator)


# From the secret.


@pytest.mark.parametrize("arguments", [{}, {"jit_compile": True}, {"run_eagerly": True}])
def test_the_seeds_that_a_user_sets_have_no_effect_on_masks(arguments):
    """Everything that Keras knows is the same twice, and the masks are not."""
    keras.utils.set_random_seed(7)
    model = compiled(stack(layers.Dropout(0.5, seed=3)), **arguments)
    found = []
    for _ in range(2):
        keras.utils.set_random_seed(7)
        set_seeds(model, 3)
        found.append(moves(model, lambda: fit(model)))
    assert np.linalg.norm(found[0] - found[1]) > 100 * FAINT


UNTRACKED = {
    "an attribute": lambda: Draws(lambda self, x: normal_of(self.seeds, x)),
    "a list": lambda: Draws(lambda self, x: normal_of(self.seeds[0], x), seeds=[keras.random.SeedGenerator(5)]),
    "a closure": lambda: (lambda seeds: Draws(lambda self, x: normal_of(seeds, x)))(keras.random.SeedGenerator(5)),
    "a global": lambda: Draws(lambda self, x: normal_of(GLOBAL, x)),
    "none at all": lambda: Draws(lambda self, x: normal_of(None, x)),
}


@pytest.mark.parametrize("name", UNTRACKED)
def test_wherever_a_generator_is_kept_its_seeds_are_secret(name: str):
    keras.utils.set_random_seed(7)
    model = compiled(stack(UNTRACKED[name]()))
    found = []
    for _ in range(2):
        keras.utils.set_random_seed(7)
        GLOBAL.state.assign(np.array([5, 0], "uint32"))
        set_seeds(model, 5)
        found.append(moves(model, lambda: fit(model)))
    assert np.linalg.norm(found[0] - found[1]) > 100 * FAINT


def test_the_generators_states_stay_where_they_were():
    model = compiled(stack(layers.Dropout(0.5), layers.GaussianNoise(0.1), Draws(lambda s, x: normal_of(GLOBAL, x))))
    generators = [*seed_generators(model), GLOBAL]
    before = [generator.state.numpy() for generator in generators]
    fit(model)
    for generator, old in zip(generators, before, strict=True):
        np.testing.assert_array_equal(generator.state.numpy(), old)


@pytest.mark.parametrize("how", ["keras", "export", "checkpoint"])
def test_a_saved_model_holds_the_seeds_of_before_training(how: str, tmp_path):
    """What training drew its masks from is in no file: of seeds there is in them what there was."""

    def seeds_saved(model, folder) -> list:
        folder.mkdir()
        if how == "keras":
            model.save_weights(folder / "m.weights.h5")
            found = []
            with h5py.File(folder / "m.weights.h5") as file:
                kept = lambda n, o: found.append(o[()]) if isinstance(o, h5py.Dataset) and "seed" in n else None  # noqa: E731
                file.visititems(kept)
        else:
            if how == "export":
                model.export(folder, verbose=False)
                path = folder / "variables" / "variables"
            else:
                path = tf.train.Checkpoint(model=model).save(str(folder / "c"))
            reader = tf.train.load_checkpoint(str(path))
            found = [reader.get_tensor(n) for n in sorted(reader.get_variable_to_shape_map()) if "optimizer" not in n]
        return [v.tolist() for v in found if np.shape(v) == (2,) and v.dtype.kind in "iu"]

    keras.utils.set_random_seed(7)
    model = compiled(stack(layers.Dropout(0.5)))
    before = seeds_saved(model, tmp_path / "before")
    assert before or how != "export"  # the others hold no seeds of layers at all
    fit(model)
    assert seeds_saved(model, tmp_path / "after") == before


def test_noise_seed_makes_masks_reproducible():
    def trained() -> np.ndarray:
        model = compiled(stack(layers.Dropout(0.5), layers.GaussianNoise(0.3)), noise_seed=4)
        fit(model)
        return flat_weights(model)

    np.testing.assert_array_equal(trained(), trained())


def test_without_noise_the_masks_are_those_of_keras():
    """Fresh ones each time, from Keras's seeds: the same twice with the same seeds."""
    model = compiled(stack(layers.Dropout(0.5, seed=3)), noise=0.0)
    found = []
    for seed in (3, 3, 4):
        set_seeds(model, seed)
        found.append(moves(model, lambda: fit(model)))
    np.testing.assert_array_equal(found[0], found[1])
    assert np.linalg.norm(found[0] - found[2]) > 1e-3


# Each example's own, and exchangeable.


def one_seed_for_two(self, x):
    seed = self.seeds.next()
    return x + tf.random.stateless_normal(tf.shape(x), seed) + tf.random.stateless_normal([1, 6], seed)


def in_a_function(self, x):
    return x + tf.function(lambda: keras.random.normal(ops.shape(x), seed=3), autograph=False)()


def in_a_loop(self, x):
    drawn = lambda i, s: (i + 1, s + keras.random.normal(ops.shape(x), seed=3))  # noqa: E731
    return tf.while_loop(lambda i, s: i < 2, drawn, [0, x])[1]


def from_a_generator_of_tensorflow(self, x):
    return x + OF_TENSORFLOW.normal(tf.shape(x))


def brightness(self, x):
    return tf.reshape(tf.image.random_brightness(tf.reshape(x, [-1, 2, 3, 1]), 0.3), [-1, 6])


KNOWN = {
    "a fixed seed": lambda self, x: normal_of(3, x),
    "a fixed seed, in a nested function": in_a_function,
    "a fixed seed, in a loop": in_a_loop,
    "a fixed seed, dropout": lambda self, x: keras.random.dropout(x, 0.5, seed=3),
    "a fixed seed of TensorFlow's": lambda self, x: x + tf.random.stateless_normal(tf.shape(x), [1, 2]),
    "tf.random.normal": lambda self, x: x + tf.random.normal(tf.shape(x)),
    "tf.random.uniform": lambda self, x: x + tf.random.uniform(tf.shape(x), seed=3),
    "tf.random.truncated_normal": lambda self, x: x + tf.random.truncated_normal(tf.shape(x)),
    "tf.random.gamma": lambda self, x: x + tf.random.gamma(tf.shape(x), 1.0),
    "tf.random.shuffle": lambda self, x: x + tf.random.shuffle(tf.range(6.0)),
    "tf.random.categorical": lambda self, x: x + tf.cast(tf.random.categorical(x, 6), tf.float32),
    "tf.random.Generator": from_a_generator_of_tensorflow,
    "tf.nn.dropout": lambda self, x: tf.nn.dropout(x, 0.5),
    "tf.image.random_brightness": brightness,
    "one seed for two draws": one_seed_for_two,
}


@pytest.mark.parametrize("name", KNOWN)
def test_random_numbers_that_are_no_secret_are_refused_by_the_layers_name(name: str):
    model = compiled(stack(layers.Dense(6), drawing(KNOWN[name])))
    before = flat_weights(model)
    with pytest.raises(ValueError, match=r"'leaky'.*SeedGenerator") as refusal:
        fit(model)
    assert "Traceback" not in str(refusal.value)
    np.testing.assert_array_equal(flat_weights(model), before)
    assert model.optimizer.ledger.steps == 0


def test_a_loss_with_a_fixed_seed_is_refused():
    def noised(y, p):
        return ops.mean(ops.square(y - p), -1) * keras.random.uniform(ops.shape(y)[:1], seed=3)

    with pytest.raises(ValueError, match="SeedGenerator"):
        fit(compiled(stack(), loss=noised))


def antithetic(self, x):
    rows = tf.shape(x)[0]
    half = keras.random.normal(((rows + 1) // 2, 6), seed=self.seeds)
    return x + tf.concat([half, -half], 0)[:rows]


def shifted(self, x):
    return x + tf.roll(keras.random.normal(ops.shape(x), seed=self.seeds), 1, 0)


def of_the_next_row(self, x):
    noise = keras.random.normal(ops.shape(x), seed=self.seeds)
    return x + 0.5 * (noise + tf.roll(noise, 1, 0))


def permuted(self, x):
    order = tf.argsort(keras.random.uniform(ops.shape(x)[:1], seed=self.seeds))
    return tf.gather(x, order)


def shuffled(self, x):
    return keras.random.shuffle(x, 0, seed=self.seeds)


def from_one_pool(self, x):
    """Row i has the numbers i, i + 1, ... of one pool."""
    pool = keras.random.normal((64,), seed=self.seeds)
    return x + tf.gather(pool, (tf.range(tf.shape(x)[0])[:, None] + tf.range(6)) % 64)


MEETING = {
    "antithetic": antithetic,
    "shifted": shifted,
    "of two rows": of_the_next_row,
    "permuted": permuted,
    "shuffled": shuffled,
    "from one pool": from_one_pool,
}


@pytest.mark.parametrize("name", MEETING)
def test_draws_that_are_not_an_examples_own_are_refused(name: str):
    with pytest.raises(ValueError, match="'leaky'"):
        fit(compiled(stack(layers.Dense(6), drawing(MEETING[name]))))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", [layers.MixUp, layers.CutMix])
def test_mixup_and_cutmix_are_refused_whatever_the_seed(kind, seed: int):
    keras.utils.set_random_seed(seed)
    with pytest.raises(ValueError, match="mixes examples"):
        fit(compiled(stack(kind(seed=seed), layers.Flatten(), shape=(8, 8, 3))), IMAGES)


def folded(self, x):
    return x + ops.reshape(keras.random.normal((3 * ops.shape(x)[0], 2), seed=self.seeds), (-1, 6))


OWN = {
    "a row each": lambda self, x: normal_of(self.seeds, x),
    "several rows an example": folded,
    "one for all, [1, ...]": lambda self, x: x + keras.random.normal((1, 6), seed=self.seeds),
    "one for all, []": lambda self, x: x * (1 + 0.1 * keras.random.normal((), seed=self.seeds)),
    "a number each": lambda self, x: x + keras.random.normal((ops.shape(x)[0], 1), seed=self.seeds),
    "whole numbers": lambda self, x: x + ops.cast(keras.random.randint(ops.shape(x), 0, 4, seed=self.seeds), "float32"),
    "gamma": lambda self, x: x + keras.random.gamma(ops.shape(x), 2.0, seed=self.seeds),
    "truncated": lambda self, x: x + keras.random.truncated_normal(ops.shape(x), seed=self.seeds),
    "categorical": lambda self, x: x + ops.cast(keras.random.categorical(x, 6, seed=self.seeds), "float32"),
    "binomial": lambda self, x: x + keras.random.binomial(ops.shape(x), 4.0, 0.5, seed=self.seeds),
    "in a function": lambda self, x: tf.function(lambda: normal_of(self.seeds, x), autograph=False)(),
}


@pytest.mark.parametrize("name", OWN)
def test_draws_of_each_example_or_of_none_are_accepted(name: str):
    model = compiled(stack(layers.Dense(6), drawing(OWN[name])))
    fit(model)
    assert model.optimizer.ledger.steps == 1


def test_a_model_that_is_run_an_example_at_a_time_has_masks_of_each_example():
    """The plan that runs whole models: equal records have different gradients, and gradients that no place decides."""

    class Own(keras.Model):
        def __init__(self):
            super().__init__()
            self.drop, self.head = layers.Dropout(0.5), layers.Dense(1)

        def call(self, x, training=None):
            return self.head(self.drop(x, training=training)) + ops.sum(self.head.kernel) * 0.1

        def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
            return ops.mean(ops.square(y - y_pred)) + 0.1 * ops.sum(ops.square(self.head.kernel))

    x, y = np.repeat(X[:1], 512, 0), np.repeat(Y[:1], 512, 0)
    model = compiled(Own())
    model(x[:1])
    plan = proved(model, x, y)
    plan.sites, plan.whole = {}, plan.whole or ["map"]
    found = lot_gradients(model, plan, tf.constant(x), tf.constant(y), secret=tf.constant([1, 2], tf.int64))
    kernel = found.gradients.materialise()[0].numpy()[:, :, 0]
    kept = (np.abs(kernel - kernel.min(0)) > 1e-6).astype(float)  # which features were there
    assert len(np.unique(kernel, axis=0)) > 32
    correlation = np.corrcoef(kept[:-1].ravel(), kept[1:].ravel())[0, 1]
    assert abs(correlation) < 5 / np.sqrt(kept.size)


# In distribution.


def augmented() -> keras.Model:
    parts = [layers.RandomFlip(), layers.GaussianNoise(0.3), layers.Flatten(), layers.Dense(8, "relu")]
    return keras.Sequential([keras.Input((6, 6, 1)), *parts, layers.Dropout(0.5), layers.Dense(2)])


def test_one_record_moves_the_mean_of_the_sum_by_one_clip():
    """Over 256 draws. With masks that belong to places, and one draw, the sum of 64 records moved by 4 clips and more."""
    keras.utils.set_random_seed(1)
    random, size, draws = np.random.default_rng(5), 12, 256
    x, y = random.normal(size=(size, 6, 6, 1)).astype("float32"), random.integers(0, 2, size).astype("int32")
    model = compiled(augmented(), loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    plan = proved(model, x, y)
    summed = bounded_sum_of(model, plan, x, y, clip=0.01)  # every record is clipped

    def mean(keep: np.ndarray, world: int) -> np.ndarray:
        """All draws at once: the lot, many times over; rows are drawn independently of each other."""
        parts = [summed(np.tile(x[keep], (draws, 1, 1, 1)), np.tile(y[keep], draws), secret=(world, s)) for s in (1, 2)]
        return np.sum(parts, 0) / (2 * draws)

    everyone = np.arange(size)
    whole = mean(everyone, 1)
    error = np.sqrt(2 * size / (2 * draws))  # of the difference of two means of sums of vectors of length 1
    for record in (0, size // 2, size - 1):
        assert np.linalg.norm(whole - mean(np.delete(everyone, record), 2)) <= 1 + error + ROUNDING


def test_rows_are_exchangeable():
    """A record's mean clipped gradient, and its variance, are the same at the first place and at the last."""
    keras.utils.set_random_seed(1)
    model = compiled(augmented(), loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    random, draws = np.random.default_rng(5), 400
    x = np.repeat(random.normal(size=(1, 6, 6, 1)).astype("float32"), 4, 0)
    plan = proved(model, np.repeat(x, 2, 0), np.zeros(8, "int32"))

    @tf.function(autograph=False)
    def norms(secret):
        lot = lot_gradients(model, plan, tf.constant(x), tf.zeros([4], tf.int32), secret=secret).gradients
        return tf.sqrt(lot.squared_norms())

    found = np.stack([norms(tf.constant([9, s], tf.int64)).numpy() for s in range(0, 7 * draws, 7)])
    spread = found.std() / np.sqrt(draws)
    assert np.all(np.abs(found.mean(0) - found.mean()) <= 5 * spread)
    assert np.all(np.abs(found.std(0) / found.std() - 1) <= 0.25)
    correlations = np.corrcoef(found.T) - np.eye(4)
    assert np.max(np.abs(correlations)) <= 5 / np.sqrt(draws)
