import copy
import json
import math
import os
import pickle
import struct
import subprocess
import sys
import zipfile

import keras
import numpy as np
import pytest
import scipy.stats
import tensorflow as tf

from tfdp.mechanisms.secret_noise import (
    SecretGenerator,
    cut_pairs_delta,
    finite_support_delta,
    normals_from_bits,
    standard_normals,
)

ONES = 2**64 - 1
LARGEST = math.sqrt(150 * math.log(2))


IN_A_PROCESS_OF_ITS_OWN = """
import json, os
import tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
from tfdp.mechanisms.secret_noise import SecretGenerator, standard_normals

generator = SecretGenerator(seed=7)
generator.random_bits([2])
read, write = os.pipe()
child = os.fork()
if child == 0:
    os.write(write, json.dumps(generator.random_bits([2]).numpy().tolist()).encode())
    os._exit(0)
os.waitpid(child, 0)
forked = [generator.random_bits([2]).numpy().tolist(), json.loads(os.read(read, 1000))]

strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
outside = SecretGenerator()
with strategy.scope():
    inside = SecretGenerator()
replicas = []
for generator in (outside, inside):
    each = tf.function(lambda: strategy.run(lambda: generator.random_bits([2])))
    def merged():
        return tf.distribute.get_replica_context().merge_call(lambda _: generator.random_bits([2]))
    once = tf.function(lambda: strategy.run(merged))
    bits = []
    for _ in range(2):
        bits += [value.numpy().tolist() for value in each().values] + [once().numpy().tolist()]
        generator.reseed()
    replicas.append(bits)

tf.config.experimental.enable_op_determinism()
deterministic = []
for _ in range(2):
    tf.random.set_seed(0)
    generator = SecretGenerator()
    draw = tf.function(lambda: standard_normals(generator, [(3,)])[0])
    deterministic += [draw().numpy().tolist(), draw().numpy().tolist()]

print(json.dumps({"forked": forked, "replicas": replicas, "deterministic": deterministic}))
"""


@pytest.fixture(scope="module")
def elsewhere() -> dict:
    """Draws of a process of its own: forks, several devices and op determinism do not suit the one of the tests."""
    environment = dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3", PYTHONPATH=os.pathsep.join(sys.path))
    command = [sys.executable, "-c", IN_A_PROCESS_OF_ITS_OWN]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def words(values) -> tf.Tensor:
    return tf.constant(np.array(values, dtype=np.uint64))


def exact_normals(radius_bits, angle_bits) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The map in extended precision, from its definition: (radius, radius * cos, radius * sin)."""
    low = np.longdouble(angle_bits & np.uint64(2047))
    u = np.ldexp(np.longdouble(radius_bits), -64) + np.ldexp(2048 - low, -75)
    radius = np.sqrt(-2 * np.log(u))
    pi = np.longdouble("3.14159265358979323846264338327950288")
    angle = np.ldexp(np.longdouble(angle_bits.view(np.int64)) * pi, -63)
    return radius, radius * np.cos(angle), radius * np.sin(angle)


def bits_at_every_scale() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    n = 200_000
    shift = rng.integers(0, 64, n).astype(np.uint64)
    radius_bits = rng.integers(0, ONES, n, dtype=np.uint64, endpoint=True) >> shift
    angle_bits = rng.integers(0, ONES, n, dtype=np.uint64, endpoint=True)
    edges = np.array(
        [0, 1, 2047, 2048, 2**52, 2**53 + 1, 2**62, 2**63 - 1, 2**63, 2**63 + 1, ONES - 1, ONES], np.uint64
    )
    pairs = np.stack(np.meshgrid(edges, edges)).reshape(2, -1)
    return np.concatenate([pairs[0], radius_bits]), np.concatenate([pairs[1], angle_bits])


# The map, at its extremes and against extended precision


@pytest.mark.parametrize(
    ("radius_bits", "angle_bits", "expected"),
    [
        (0, ONES, (LARGEST, 0)),
        (0, 2**63 - 1, (-LARGEST, 0)),
        (0, 0, (math.sqrt(128 * math.log(2)), 0)),
        (0, 2**63, (-math.sqrt(128 * math.log(2)), 0)),
        (2**63, 2**62, (0, math.sqrt(2 * math.log(2)))),
        (2**63, ONES - 2**62 + 1, (0, -math.sqrt(2 * math.log(2)))),
        (ONES, 0, (0, 0)),
        (ONES, ONES, (0, 0)),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_extreme_bits_give_the_values_of_the_formula(radius_bits, angle_bits, expected, dtype):
    values = np.stack(normals_from_bits(words([radius_bits]), words([angle_bits]), dtype))[:, 0]
    np.testing.assert_allclose(values, expected, rtol=1e-6, atol=3e-6 if dtype == "float32" else 1e-13)


def test_the_largest_draw_is_beyond_ten_standard_deviations_where_tensorflow_stops_below_six():
    largest = float(normals_from_bits(words([0]), words([ONES]))[0][0])
    assert largest == np.float32(LARGEST) > 10
    assert math.sqrt(-2 * math.log(1e-7)) < 5.68


@pytest.mark.parametrize("jit_compile", [False, True])
def test_no_bits_give_nan_or_infinity_or_more_than_the_largest_radius(jit_compile):
    radius_bits, angle_bits = bits_at_every_scale()
    near_one = np.uint64(ONES) - np.arange(2**18, dtype=np.uint64) * np.uint64(2**9)
    radius_bits = np.concatenate([radius_bits, near_one])
    angle_bits = np.concatenate([angle_bits, near_one * np.uint64(0x9E3779B97F4A7C15)])
    compute = tf.function(normals_from_bits, jit_compile=jit_compile)
    first, second = (value.numpy() for value in compute(words(radius_bits), words(angle_bits)))
    assert np.isfinite(first).all() and np.isfinite(second).all()
    assert np.hypot(first.astype("float64"), second).max() <= LARGEST * (1 + 4e-7)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_draws_are_within_their_stated_distance_of_extended_precision(jit_compile):
    radius_bits, angle_bits = bits_at_every_scale()
    radius, *exact = exact_normals(radius_bits, angle_bits)
    compute = tf.function(normals_from_bits, jit_compile=jit_compile)
    in_radius = np.minimum(1e-15 * (radius + 1 / np.maximum(radius, 1e-30)), 1.1e-8)
    for dtype, in_direction in (("float32", 4e-7), ("float64", 2e-15)):
        computed = compute(words(radius_bits), words(angle_bits), dtype)
        for value, true_value in zip(computed, exact, strict=True):
            assert (np.abs(value.numpy() - true_value) <= in_radius + in_direction * radius).all()


def test_the_radius_never_grows_with_the_bits():
    ladder = sorted({scale + step for scale in (2**k for k in range(64)) for step in (-1, 0, 1)} | {0, ONES})
    radii = normals_from_bits(words(ladder), words([0] * len(ladder)), "float64")[0].numpy()
    assert (np.diff(radii) <= 1e-15).all()
    within_the_last_cell = normals_from_bits(words([0] * 2048), words(range(2048)), "float64")
    assert (np.diff(np.hypot(*within_the_last_cell)) > 0).all()


def test_the_radius_has_the_tail_of_a_true_pair_out_to_its_end():
    for radius in np.arange(0.05, 10.0, 0.05):
        cell = round(scipy.stats.rayleigh.sf(radius) * 2**75) - 1  # as many of the 2^75 cells lie further out
        radius_bits, low = divmod(cell, 2048)
        value = float(normals_from_bits(words([radius_bits]), words([2047 - low]), "float64")[0][0])
        assert value == pytest.approx(radius, rel=1e-3 if radius > 9 else 1e-6)


# The distribution


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_million_draws_are_standard_normal(dtype):
    draws = standard_normals(SecretGenerator(seed=1), [(1_000_000,)], dtype)[0].numpy().astype("float64")
    n = draws.size
    assert abs(draws.mean()) < 4 / math.sqrt(n)
    assert abs(draws.std() - 1) < 4 / math.sqrt(2 * n)
    assert abs(scipy.stats.skew(draws)) < 4 * math.sqrt(6 / n)
    assert abs(scipy.stats.kurtosis(draws)) < 4 * math.sqrt(24 / n)
    assert scipy.stats.kstest(draws, "norm").pvalue > 1e-3


def test_both_draws_of_a_pair_and_the_words_of_a_pair_are_independent():
    first, second = np.split(standard_normals(SecretGenerator(seed=2), [(400_000,)])[0].numpy(), 2)
    for left, right in (
        (first, second),
        (first**2, second**2),
        (first[1:], first[:-1]),
        (first[1:], second[:-1]),
    ):
        assert abs(np.corrcoef(left, right)[0, 1]) < 4 / math.sqrt(left.size)


def test_noise_of_all_variables_has_their_shapes_and_shares_no_value():
    shapes = [(3, 5), (), (0, 4), tf.TensorShape([7]), [2, 2, 2]]
    noise = standard_normals(SecretGenerator(), shapes)
    assert [tuple(tensor.shape) for tensor in noise] == [(3, 5), (), (0, 4), (7,), (2, 2, 2)]
    values = np.concatenate([tensor.numpy().ravel() for tensor in noise])
    assert len(np.unique(values)) == values.size == 31
    assert standard_normals(SecretGenerator(), []) == []


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_noise_has_the_type_that_was_asked_for(dtype):
    noise = standard_normals(SecretGenerator(seed=3), [(10_000,)], dtype)[0]
    assert noise.dtype == dtype
    assert np.std(noise.numpy().astype("float64")) == pytest.approx(1, abs=0.03)


def test_integer_noise_is_refused():
    with pytest.raises(ValueError, match="float32"):
        standard_normals(SecretGenerator(), [(1,)], "int32")


# The secret


def state(generator: SecretGenerator) -> list[int]:
    return [int(word) for word in generator._generator.state.numpy()]


def test_global_seeds_do_not_move_it():
    drawn = []
    for _ in range(2):
        keras.utils.set_random_seed(0)
        tf.random.set_seed(0)
        drawn.append(SecretGenerator().random_bits([4]).numpy())
    assert not (drawn[0] == drawn[1]).any()


def test_it_works_under_op_determinism_and_is_no_more_predictable(elsewhere):
    values = np.array(elsewhere["deterministic"])
    assert len(np.unique(values)) == values.size == 12


def test_a_seed_reproduces_the_bits_and_says_so():
    assert SecretGenerator(seed=5).seeded and not SecretGenerator().seeded
    same = [SecretGenerator(seed=5).random_bits([4]).numpy() for _ in range(2)]
    np.testing.assert_array_equal(*same)


def test_neighbouring_seeds_share_no_bits():
    streams = [SecretGenerator(seed=seed).random_bits([1000]).numpy() for seed in (0, 1, 2)]
    assert len(np.unique(streams)) == 3000


def test_a_reseeded_generator_with_a_seed_still_counts_as_seeded():
    generator = SecretGenerator(seed=5)
    generator.reseed()
    assert generator.seeded
    assert (generator.random_bits([4]).numpy() != SecretGenerator(seed=5).random_bits([4]).numpy()).all()


@pytest.mark.parametrize(
    "duplicate", [copy.copy, copy.deepcopy, lambda generator: pickle.loads(pickle.dumps(generator))]
)
@pytest.mark.parametrize("seed", [None, 5])
def test_a_duplicate_has_fresh_entropy(duplicate, seed):
    generator = SecretGenerator(seed=seed)
    twin = duplicate(generator)
    assert not twin.seeded
    assert (twin.random_bits([4]).numpy() != generator.random_bits([4]).numpy()).all()


def test_a_pickle_holds_no_state():
    generator = SecretGenerator()
    generator.random_bits([3])
    assert not holds_state([pickle.dumps(generator), repr(generator).encode()], state(generator))


def test_a_forked_process_draws_other_bits_than_its_parent(elsewhere):
    parent, child = elsewhere["forked"]
    assert not set(parent) & set(child)


def test_graphs_made_before_and_after_a_reseed_use_the_new_state():
    generator = SecretGenerator(seed=5)
    before = tf.function(lambda: generator.random_bits([2]))
    first = before().numpy()
    generator._generator.reset(state(SecretGenerator(seed=5)))
    np.testing.assert_array_equal(before().numpy(), first)
    generator._generator.reset(state(SecretGenerator(seed=5)))
    generator.reseed()
    after = tf.function(lambda: generator.random_bits([2]))
    assert len(np.unique([first, before().numpy(), after().numpy(), before().numpy()])) == 8


@pytest.mark.parametrize("jit_compile", [False, True])
def test_a_graph_draws_anew_at_every_call_without_retracing(jit_compile):
    traces = []
    generator = SecretGenerator()

    @tf.function(jit_compile=jit_compile)
    def draw():
        traces.append(1)
        return standard_normals(generator, [(3, 2), (4,)])

    values = np.concatenate([tensor.numpy().ravel() for _ in range(5) for tensor in draw()])
    assert len(np.unique(values)) == values.size == 50
    assert len(traces) == 1


def test_it_can_be_made_while_a_graph_is_traced():
    made = []

    @tf.function
    def draw():
        if not made:
            made.append(SecretGenerator())
        return made[0].random_bits([2])

    assert len(np.unique([draw().numpy(), draw().numpy(), made[0].random_bits([2]).numpy()])) == 6


def test_replicas_draw_different_bits_and_a_draw_across_them_is_one(elsewhere):
    for bits in elsewhere["replicas"]:
        assert np.shape(bits) == (6, 2)
        assert len({word for pair in bits for word in pair}) == 12


# Saved files


def holds_state(contents: list[bytes], state_words: list[int]) -> bool:
    forms = [form for word in state_words for form in (struct.pack("<q", word), struct.pack(">q", word), b"%d" % word)]
    return any(form in content for content in contents for form in forms)


def contents_of(folder) -> list[bytes]:
    contents = []
    for path in folder.rglob("*"):
        if path.suffix == ".keras":
            with zipfile.ZipFile(path) as archive:
                contents += [archive.read(name) for name in archive.namelist()]
        elif path.is_file():
            contents.append(path.read_bytes())
    return contents


class NoisyOptimizer(keras.optimizers.SGD):
    """Holds a generator as attributes can hold one, and draws from it in the graph of its step."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.generator = SecretGenerator()
        self.in_a_list = [self.generator]
        self.in_a_dict = {"generator": self.generator}

    def apply(self, grads, trainable_variables=None):
        noise = standard_normals(self.generator, [gradient.shape for gradient in grads])
        return super().apply([g + z for g, z in zip(grads, noise, strict=True)], trainable_variables)


def test_no_saved_file_of_a_model_that_draws_from_it_contains_its_state(tmp_path):
    model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(2)])
    model.compile(optimizer=NoisyOptimizer(), loss="mse")
    model.fit(np.ones((8, 3), "float32"), np.ones((8, 2), "float32"), batch_size=2, verbose=0)
    model.save(tmp_path / "model.keras")
    model.save_weights(tmp_path / "model.weights.h5")
    tf.train.Checkpoint(model=model, optimizer=model.optimizer).save(str(tmp_path / "checkpoint"))
    tf.train.Checkpoint(optimizer=model.optimizer).write(str(tmp_path / "written"))
    model.export(tmp_path / "exported", verbose=False)
    contents = contents_of(tmp_path)
    assert len(contents) >= 10
    assert not holds_state(contents, state(model.optimizer.generator))
    generator = model.optimizer.generator._generator
    assert not any(variable is generator.state for variable in model.optimizer.variables)


def test_the_search_of_saved_files_finds_a_state_that_is_there(tmp_path):
    module = tf.Module()
    module.generator = tf.random.Generator.from_state(state(SecretGenerator()), alg="philox")
    tf.train.Checkpoint(module=module).save(str(tmp_path / "checkpoint"))
    assert holds_state(contents_of(tmp_path), [int(word) for word in module.generator.state.numpy()])


def test_a_checkpoint_restored_twice_continues_with_different_noise(tmp_path):
    optimizer = NoisyOptimizer()
    optimizer.build([keras.Variable(np.zeros(4, "float32"))])
    path = tf.train.Checkpoint(optimizer=optimizer).save(str(tmp_path / "checkpoint"))
    continuations = []
    for _ in range(2):
        restored = NoisyOptimizer()
        restored.build([keras.Variable(np.zeros(4, "float32"))])
        tf.train.Checkpoint(optimizer=restored).restore(path).assert_consumed()
        continuations.append(standard_normals(restored.generator, [(4,)])[0].numpy())
    assert not set(continuations[0]) & set(continuations[1])


# The price of the finite support


def random_shifts(pairs: int, norm: float, rng: np.random.Generator) -> np.ndarray:
    """Of given joint norm, spread over all pairs or over few."""
    shifts = rng.exponential(size=pairs) ** rng.choice([0.5, 1, 4, 16])
    return norm * shifts / np.linalg.norm(shifts)


@pytest.mark.parametrize("radius", [3.0, 5.0, LARGEST])
@pytest.mark.parametrize("pairs", [1, 2, 40, 10_000])
def test_pairs_pass_the_largest_radius_of_a_shifted_centre_no_more_often_than_priced(pairs, radius):
    """The exact probability: |z + s|^2 is chi-square with two degrees of freedom, non-central."""
    rng = np.random.default_rng(7)
    beyond_its_own = pairs * math.exp(-(radius**2) / 2)
    for norm in np.linspace(0.01, radius - math.sqrt(3), 7):
        for _ in range(5):
            shifts = random_shifts(pairs, norm, rng)
            beyond = scipy.stats.ncx2.sf(radius**2, 2, shifts**2).sum()
            assert beyond + beyond_its_own <= cut_pairs_delta(pairs, norm, radius)


@pytest.mark.parametrize("epsilon", [0.0, 1.0, 6.0])
@pytest.mark.parametrize(
    ("radius", "shift", "rate"), [(3.0, 1.0, 1.0), (3.0, 1.2, 0.3), (4.0, 2.0, 0.5), (4.0, 0.5, 1.0)]
)
def test_cutting_the_radius_adds_no_more_delta_than_stated(radius, shift, rate, epsilon):
    """One pair, with the radius cut where it shows, integrated over the plane: both directions, sampled or not."""
    x, y = np.meshgrid(np.linspace(-9, 9, 1201), np.linspace(-9, 9, 1201))
    cell = (18 / 1200) ** 2

    def density(centre, cut):
        squared = (x - centre) ** 2 + y**2
        inside = np.where(squared <= radius**2, 1 / (1 - math.exp(-(radius**2) / 2)), 0) if cut else 1.0
        return np.exp(-squared / 2) / (2 * math.pi) * inside

    def deltas(cut):
        without = density(0.0, cut)
        member = (1 - rate) * without + rate * density(shift, cut)
        return [
            np.maximum(p - math.exp(epsilon) * q, 0).sum() * cell for p, q in ((member, without), (without, member))
        ]

    for true, cut in zip(deltas(False), deltas(True), strict=True):
        assert cut <= true + cut_pairs_delta(1, shift, radius)


def test_the_integration_over_the_plane_sees_that_a_cut_radius_costs_delta():
    """With no sampling and epsilon large, what is left is the mass outside the other's support."""
    rng = np.random.default_rng(3)
    z = rng.standard_normal((10**6, 2))
    z = z[np.linalg.norm(z, axis=1) <= 3.0]
    outside = np.mean(np.linalg.norm(z + np.array([1.0, 0.0]), axis=1) > 3.0)
    assert 0 < outside <= cut_pairs_delta(1, 1.0, 3.0) <= 10 * outside


def test_a_run_pays_for_each_pair_of_each_step():
    tail = scipy.stats.rayleigh.sf(LARGEST)
    assert tail == pytest.approx(2.0**-75, rel=1e-12)
    for weights, steps in ((1, 1), (2, 3), (7, 10), (10**6, 10**4)):
        price = finite_support_delta(weights, steps, 1e9)
        assert price == pytest.approx(steps * tail * (2 * math.ceil(weights / 2) + 1), rel=1e-6)


def test_what_it_adds_to_delta_is_far_below_delta_at_realistic_sizes_and_capped_at_one():
    assert finite_support_delta(10**6, 10_000, 1.0) < 1e-12
    assert finite_support_delta(10**9, 10**6, 0.5) < 1e-7
    assert finite_support_delta(10**6, 10_000, 0.3) < 1e-6
    assert finite_support_delta(1, 1, 0.1) == finite_support_delta(1, 1, 0.0) == 1
    assert finite_support_delta(10**40, 1, 1.0) == 1
    assert finite_support_delta(10**6, 0, 0.0) == finite_support_delta(0, 10, 1.0) == 0


@pytest.mark.parametrize(("weights", "steps", "noise"), [(-1, 1, 1.0), (1, -1, 1.0), (1, 1, -1.0), (1, 1, math.nan)])
def test_a_negative_count_or_noise_is_refused(weights, steps, noise):
    with pytest.raises(ValueError, match="0 or more"):
        finite_support_delta(weights, steps, noise)
