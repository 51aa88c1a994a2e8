"""Random bits that nobody can replay."""

import copy
import json
import os
import pickle
import struct
import subprocess
import sys
import zipfile

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfdp.gradients.compilation import compiling
from tfdp.mechanisms import SecretGenerator, standard_normals

IN_A_PROCESS_OF_ITS_OWN = """
import json, os
import tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
from tfdp.mechanisms import SecretGenerator, standard_normals

generator = SecretGenerator(seed=7)
generator.random_bits(2)
read, write = os.pipe()
child = os.fork()
if child == 0:
    os.write(write, json.dumps(generator.random_bits(2).numpy().tolist()).encode())
    os._exit(0)
os.waitpid(child, 0)
forked = [generator.random_bits(2).numpy().tolist(), json.loads(os.read(read, 1000))]

strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
outside = SecretGenerator()
with strategy.scope():
    inside = SecretGenerator()
replicas = []
for generator in (outside, inside):
    def draw():
        return standard_normals(generator, [(2,)])[0]
    each = tf.function(lambda: strategy.run(draw))
    def merged():
        return tf.distribute.get_replica_context().merge_call(lambda _: draw())
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


def state(generator: SecretGenerator) -> list[int]:
    return [int(word) for word in generator._generator.state.numpy()]


def test_global_seeds_do_not_move_it():
    drawn = []
    for _ in range(2):
        keras.utils.set_random_seed(0)
        tf.random.set_seed(0)
        drawn.append(SecretGenerator().random_bits(4).numpy())
    assert not (drawn[0] == drawn[1]).any()


def test_it_works_under_op_determinism_and_is_no_more_predictable(elsewhere):
    values = np.array(elsewhere["deterministic"])
    assert len(np.unique(values)) == values.size == 12


def test_a_seed_reproduces_the_bits_and_says_so():
    assert SecretGenerator(seed=5).seeded and not SecretGenerator().seeded
    same = [SecretGenerator(seed=5).random_bits(4).numpy() for _ in range(2)]
    np.testing.assert_array_equal(*same)


def test_neighbouring_seeds_share_no_bits():
    streams = [SecretGenerator(seed=seed).random_bits(1000).numpy() for seed in (0, 1, 2)]
    assert len(np.unique(streams)) == 3000


def test_a_reseeded_generator_with_a_seed_still_counts_as_seeded():
    generator = SecretGenerator(seed=5)
    generator.reseed()
    assert generator.seeded
    assert (generator.random_bits(4).numpy() != SecretGenerator(seed=5).random_bits(4).numpy()).all()


@pytest.mark.parametrize(
    "duplicate", [copy.copy, copy.deepcopy, lambda generator: pickle.loads(pickle.dumps(generator))]
)
@pytest.mark.parametrize("seed", [None, 5])
def test_a_duplicate_has_fresh_entropy(duplicate, seed):
    generator = SecretGenerator(seed=seed)
    twin = duplicate(generator)
    assert not twin.seeded
    assert (twin.random_bits(4).numpy() != generator.random_bits(4).numpy()).all()


def test_a_pickle_holds_no_state():
    generator = SecretGenerator()
    generator.random_bits(3)
    assert not holds_state([pickle.dumps(generator), repr(generator).encode()], state(generator))


def test_a_forked_process_draws_other_bits_than_its_parent(elsewhere):
    parent, child = elsewhere["forked"]
    assert not set(parent) & set(child)


def test_graphs_made_before_and_after_a_reseed_use_the_new_state():
    generator = SecretGenerator(seed=5)
    before = tf.function(lambda: generator.random_bits(2))
    first = before().numpy()
    generator._generator.reset(state(SecretGenerator(seed=5)))
    np.testing.assert_array_equal(before().numpy(), first)
    generator._generator.reset(state(SecretGenerator(seed=5)))
    generator.reseed()
    after = tf.function(lambda: generator.random_bits(2))
    assert len(np.unique([first, before().numpy(), after().numpy(), before().numpy()])) == 8


@pytest.mark.parametrize("jit_compile", [False, True])
def test_a_graph_draws_anew_at_every_call_without_retracing(jit_compile):
    traces = []
    generator = SecretGenerator()

    @tf.function(jit_compile=jit_compile)
    def draw():
        traces.append(1)
        with compiling(xla=jit_compile):
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
        return made[0].random_bits(2)

    assert len(np.unique([draw().numpy(), draw().numpy(), made[0].random_bits(2).numpy()])) == 6


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
