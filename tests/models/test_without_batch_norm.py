"""A model without batch norm is the model it was, but for that: weights, names, sharing, files; and it trains privately."""

import subprocess
import sys

import keras
import numpy as np
import pytest

import tfdp
from tests.brute_force import brute_force, flat_weights
from tfdp.data import PoissonBatches
from tfdp.gradients import prove

L = keras.layers
IMAGES = (32, 32, 3)


def trained(model: keras.Model) -> keras.Model:
    """Weights and statistics of batch norms as training leaves them."""
    random = np.random.default_rng(0)
    for layer in model._flatten_layers():
        if isinstance(layer, L.BatchNormalization):
            for weight in layer.variables:
                positive = "variance" in weight.name or "gamma" in weight.name
                weight.assign(
                    random.uniform(0.5, 1.5, weight.shape) if positive else random.normal(0, 0.3, weight.shape)
                )
    return model


@keras.saving.register_keras_serializable("tests")
class Block(L.Layer):
    """As in KerasHub's EfficientNet and MobileNet: batch norms made by the layer itself, also in a list and in a model."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.first = L.Conv2D(6, 3, strides=2, padding="same")
        self.norm = L.BatchNormalization()
        self.more = [L.Conv2D(6, 1), L.BatchNormalization(axis=-1, scale=False)]
        self.last = keras.Sequential([L.Input((None, None, 6)), L.BatchNormalization(), L.ReLU()])

    def build(self, shape):
        for layer in (self.first, self.norm, *self.more):
            layer.build(shape)
            shape = layer.compute_output_shape(shape)

    def call(self, x):
        x = self.norm(self.first(x))
        for layer in self.more:
            x = layer(x)
        return self.last(x)


def blocks() -> keras.Model:
    return keras.Sequential([L.Input((8, 8, 3)), Block(), L.GlobalAveragePooling2D(), L.Dense(3)])


def siamese() -> keras.Model:
    """One backbone for two inputs, one of its layers outside it as well; a sum of tensors; a vocabulary that only the layer knows."""
    shared = L.Dense(6, name="shared")
    words = L.StringLookup(output_mode="one_hot")
    words.adapt(["a", "b", "c", "b"])
    backbone = keras.Sequential(
        [L.Input((6,)), shared, L.BatchNormalization(name="norm"), L.Activation("tanh")], name="backbone"
    )
    left, right = L.Input((6,)), L.Input((6,))
    word = L.Input((1,), dtype="string")
    joined = L.Concatenate()([shared(backbone(left)) + backbone(right), words(word)])
    return keras.Model([left, right, word], L.Dense(1)(joined))


def vectors() -> keras.Model:
    """Built by its first batch."""
    model = keras.Sequential([L.Dense(5), L.BatchNormalization(), L.Dense(2)])
    model(np.zeros((2, 3), "f4"))
    return model


def mobile_net() -> keras.Model:
    return keras.applications.MobileNetV2(input_shape=IMAGES, alpha=0.35, weights=None, classes=4)


def dense_net() -> keras.Model:
    net = keras.src.applications.densenet.DenseNet([1, 1, 1, 1], False, weights=None, input_shape=IMAGES, pooling="avg")
    return keras.Sequential([L.Input(IMAGES), L.Rescaling(1 / 255.0), net, L.Dense(4)])


def kerashub_res_net() -> keras.Model:
    models = pytest.importorskip("keras_hub").models
    return models.ResNetBackbone(
        input_conv_filters=[64],
        input_conv_kernel_sizes=[3],
        stackwise_num_filters=[64, 16],
        stackwise_num_blocks=[1, 1],
        stackwise_num_strides=[1, 2],
        block_type="basic_block",
        image_shape=IMAGES,
    )


def kerashub_mobile_net() -> keras.Model:
    models = pytest.importorskip("keras_hub").models
    return models.MobileNetBackbone(
        stackwise_expansion=[[16, 16]],
        stackwise_num_blocks=[2],
        stackwise_num_filters=[[8, 8]],
        stackwise_kernel_size=[[3, 3]],
        stackwise_num_strides=[[2, 1]],
        stackwise_se_ratio=[[None, 0.25]],
        stackwise_activation=[["relu", "hard_swish"]],
        stackwise_padding=[[1, 1]],
        output_num_filters=16,
        input_num_filters=8,
        depthwise_filters=8,
        depthwise_stride=2,
        depthwise_residual=False,
        last_layer_filter=16,
        image_shape=IMAGES,
    )


def some_of(model: keras.Model, rows: int = 4):
    random = np.random.default_rng(1)
    return [
        random.choice(["a", "b", "z"], (rows, 1))
        if spec.dtype == "string"
        else random.random((rows, *spec.shape[1:]), "f4")
        for spec in model.inputs
    ]


def outputs(model: keras.Model) -> np.ndarray:
    given = some_of(model)
    return keras.tree.flatten(model(given if len(given) > 1 else given[0], training=False))[0].numpy()


def reloaded(model: keras.Model, tmp_path) -> keras.Model:
    model.save(tmp_path / "copy.keras")
    return keras.models.load_model(tmp_path / "copy.keras")


IN_FILES = [mobile_net, dense_net, kerashub_res_net, kerashub_mobile_net, blocks, vectors]
MODELS = [*IN_FILES, siamese]  # Keras can't read siamese from a file, with batch norm or without


@pytest.mark.parametrize("make", MODELS)
def test_with_frozen_statistics_inference_is_unchanged(make):
    model = trained(make())
    np.testing.assert_allclose(
        outputs(tfdp.models.without_batch_norm(model, by="frozen")), outputs(model), rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("make", MODELS)
def test_with_groups_no_batch_norm_and_no_statistics_are_left_and_all_other_weights_are_kept(make):
    model = trained(make())
    copy = tfdp.models.without_batch_norm(model)
    assert not [layer for layer in copy._flatten_layers() if isinstance(layer, L.BatchNormalization)]

    def values(of):
        kept = [w for w in of.weights if "moving" not in w.name and "seed" not in w.name]
        return sorted((w.name, *w.shape, float(np.sum(w))) for w in kept)

    assert values(copy) == values(model)
    assert not {id(w) for w in copy.weights} & {id(w) for w in model.weights}


@pytest.mark.parametrize("by", ["group", "frozen"])
@pytest.mark.parametrize("make", IN_FILES)
def test_a_copy_comes_back_from_a_file_as_it_was(make, by, tmp_path):
    copy = tfdp.models.without_batch_norm(trained(make()), by=by)
    np.testing.assert_allclose(outputs(reloaded(copy, tmp_path)), outputs(copy), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("by", ["group", "frozen"])
def test_a_copy_is_served_by_rules_and_its_gradients_are_brute_forces(by):
    model = tfdp.models.without_batch_norm(trained(blocks()), by=by)
    random = np.random.default_rng(2)
    x, y = random.random((6, 8, 8, 3), "f4"), random.integers(0, 3, 6)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer="sgd", loss=loss)
    lots = PoissonBatches(x, y, batch_size=6)
    assert not [line for line in prove(model, lots.record_spec, lots.head(6), 6).describe() if "universal" in line]
    examples, start = brute_force(model, x, y), flat_weights(model)
    clip = float(np.median(examples.norms))
    statistics = [w.numpy() for w in model.non_trainable_weights]
    model.compile(optimizer=tfdp.NoisySGD(1.0, l2_norm_clip=clip, noise_multiplier=0.0), loss=loss)
    model.fit(x, y, batch_size=6, verbose=0)
    update = examples.update(clip)
    assert np.linalg.norm(start - flat_weights(model) - update) <= 1e-5 * np.linalg.norm(update)
    for before, after in zip(statistics, model.non_trainable_weights, strict=True):
        np.testing.assert_array_equal(before, after)


def test_layers_that_are_shared_stay_shared_and_frozen_ones_frozen():
    model = siamese()
    model.get_layer("backbone").get_layer("norm").trainable = False
    copy = tfdp.models.without_batch_norm(model)
    assert copy.get_layer("shared") is copy.get_layer("backbone").get_layer("shared")
    assert not copy.get_layer("backbone").get_layer("norm").trainable
    assert [w.name for w in copy.trainable_weights] == [w.name for w in model.trainable_weights]


@pytest.mark.parametrize(
    ("axis", "shape"), [(-1, (4, 4, 24)), (3, (4, 4, 24)), (1, (24, 4, 4)), (-3, (24, 4, 4)), (1, (24,))]
)
def test_groups_are_of_several_channels_of_the_axis_that_was_normalised(axis, shape):
    """Divisors of 24 are 1, 2, 3, 4, 6: 6 groups of 4. A vector has no places to average over: one group."""
    copy = tfdp.models.without_batch_norm(keras.Sequential([L.Input(shape), L.BatchNormalization(axis=axis)]))
    x = np.random.default_rng(0).normal(size=(3, *shape)).astype("f4")
    groups = 6 if len(shape) > 1 else 1
    channels = np.moveaxis(x, axis, 1).reshape(3, groups, -1)
    wanted = (channels - channels.mean(-1, keepdims=True)) / np.sqrt(channels.var(-1, keepdims=True) + 1e-3)
    np.testing.assert_allclose(np.moveaxis(copy(x).numpy(), axis, 1).reshape(wanted.shape), wanted, atol=1e-5)


class Unconfigured(L.Layer):
    def __init__(self, units):
        super().__init__()
        self.dense = L.Dense(units)

    def call(self, x):
        return self.dense(x)


class Written(keras.Model):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.norm = L.BatchNormalization()

    def call(self, x):
        return self.norm(x)


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        (lambda: (Written(), "group"), TypeError, r"without_batch_norm\(keras\.Model\(inputs, model\(inputs\)\)\)"),
        (lambda: (keras.Sequential([L.BatchNormalization()]), "group"), ValueError, r"model\.build\(input_shape\)"),
        (
            lambda: (keras.Sequential([L.Input((3,)), Unconfigured(2)]), "group"),
            TypeError,
            r"super\(\)\.__init__\(\*\*kwargs\)",
        ),
        (lambda: (vectors(), "layer"), ValueError, 'by="group" or by="frozen"'),
    ],
    ids=["a class of its own", "not built", "without a config", "unknown"],
)
def test_what_cannot_be_replaced_is_refused_with_the_cure(given, error, says):
    with pytest.raises(error, match=says):
        tfdp.models.without_batch_norm(*given())


def test_the_cure_for_a_class_of_its_own_works():
    inputs, model = keras.Input((5,)), Written()
    copy = tfdp.models.without_batch_norm(keras.Model(inputs, model(inputs)), by="frozen")
    x = np.random.default_rng(0).normal(size=(3, 5)).astype("f4")
    np.testing.assert_allclose(copy(x, training=True), model(x, training=False), atol=1e-6)


def test_a_file_of_a_frozen_copy_is_read_in_a_process_that_only_imported_tfdp(tmp_path):
    tfdp.models.without_batch_norm(vectors(), by="frozen").save(tmp_path / "copy.keras")
    read = "import tfdp, keras, sys; print(keras.models.load_model(sys.argv[1]).layers[1].__class__.__name__)"
    done = subprocess.run(
        [sys.executable, "-c", read, str(tmp_path / "copy.keras")], capture_output=True, text=True, check=True
    )
    assert done.stdout.split()[-1] == "FrozenBatchNormalization"


def test_a_copy_has_the_ledger_of_the_weights_it_was_given_and_not_what_they_are_trained_with_later():
    def private(model):
        model.compile(tfdp.NoisySGD(0.1, l2_norm_clip=1.0, noise_multiplier=1.0), loss="mse")
        return model

    model = private(keras.Sequential([L.Input((3,)), L.Dense(1)]))
    fit = {"x": np.ones((8, 3)), "y": np.ones((8, 1)), "batch_size": 2, "verbose": 0}
    model.fit(**fit)
    copy = private(tfdp.models.without_batch_norm(model))
    assert tfdp.privacy_statement(copy).epsilon == tfdp.privacy_statement(model).epsilon > 0
    model.fit(**fit)
    assert copy.optimizer.ledger.steps == 4
    copy.fit(**fit)
    assert copy.optimizer.ledger.steps == 8
