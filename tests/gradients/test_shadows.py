"""What stands before somebody else's functions: in one thread, in any order, and never for good."""

import threading

import keras
import numpy as np
import pytest
from keras import layers

import tfdp
from tfdp.gradients import shadows
from tfdp.gradients.losses import losses_of_one_device
from tfdp.gradients.shadows import shadowed

X = np.random.default_rng(0).normal(size=(8, 3)).astype("float32")
Y = np.random.default_rng(1).normal(size=(8, 1)).astype("float32")


class Owner:
    """Somebody else's class."""

    def greet(self, name):
        return f"hello {name}"

    @staticmethod
    def count(a, b=1):
        return a + b


GREET, COUNT = Owner.__dict__["greet"], Owner.__dict__["count"]


def louder(original, *args, **kwargs):
    return original(*args, **kwargs) + "!"


@pytest.fixture(autouse=True)
def all_is_restored():
    yield
    assert not shadows.are_in_place()
    assert Owner.__dict__["greet"] is GREET and Owner.__dict__["count"] is COUNT


def test_calls_go_to_the_handler_until_the_end():
    with shadowed(Owner, "greet", louder):
        assert Owner().greet("you") == "hello you!"
        assert shadows.are_in_place()
    assert Owner().greet("you") == "hello you"


def test_the_outer_shadow_is_the_original_of_the_inner_one():
    def asked(original, owner, name):
        return original(owner, name) + "?"

    with shadowed(Owner, "greet", louder), shadowed(Owner, "greet", asked):
        assert Owner().greet("you") == "hello you!?"


def test_a_static_method_keeps_its_arguments_and_is_put_back_as_it_was():
    with shadowed(Owner, "count", lambda original, *args, **kwargs: -original(*args, **kwargs)):
        assert Owner.count(2, b=3) == -5
    assert Owner.count(2, b=3) == 5


def test_an_exception_inside_ends_the_shadow():
    with pytest.raises(KeyError), shadowed(Owner, "greet", louder), shadowed(Owner, "greet", louder):
        raise KeyError


def test_other_threads_see_the_original():
    heard = []
    with shadowed(Owner, "greet", louder):
        other = threading.Thread(target=lambda: heard.append(Owner().greet("you")))
        other.start()
        other.join()
    assert heard == ["hello you"]


@pytest.mark.parametrize("first_out", [0, 1])
def test_overlapping_threads_may_end_in_any_order(first_out: int):
    """The one that comes first may go first: the object that stood there is put back by whoever goes last."""
    inside, leave = [threading.Event(), threading.Event()], [threading.Event(), threading.Event()]
    heard = [[], []]

    def run(number: int) -> None:
        with shadowed(Owner, "greet", lambda original, *args: f"{original(*args)} {number}"):
            inside[number].set()
            leave[number].wait(10)
            heard[number].append(Owner().greet("you"))
        heard[number].append(Owner().greet("you"))

    threads = [threading.Thread(target=run, args=(number,)) for number in (0, 1)]
    for thread, entered in zip(threads, inside, strict=True):
        thread.start()
        assert entered.wait(10)
    for number in (first_out, 1 - first_out):
        leave[number].set()
        threads[number].join(10)
    assert heard == [["hello you 0", "hello you"], ["hello you 1", "hello you"]]


def test_overlapping_threads_leave_kerass_scaling_of_losses_as_it_was():
    """What computes the losses of one device once stayed in Keras for good, if the thread that came first went first."""
    module = keras.src.losses.loss
    before = module.scale_loss_for_distribution
    inside, leave = [threading.Event(), threading.Event()], [threading.Event(), threading.Event()]

    def run(number: int) -> None:
        with losses_of_one_device():
            inside[number].set()
            leave[number].wait(10)

    threads = [threading.Thread(target=run, args=(number,)) for number in (0, 1)]
    for thread, entered in zip(threads, inside, strict=True):
        thread.start()
        assert entered.wait(10)
    for number, thread in enumerate(threads):
        leave[number].set()
        thread.join(10)
    assert module.scale_loss_for_distribution is before


def globals_of_others() -> list:
    """All that tfdp may stand before: the owners' attributes as they are now."""
    from keras.src.backend.tensorflow import layer as keras_layer
    from tensorflow.python.ops import gen_stateless_random_ops_v2
    from tensorflow.python.ops.resource_variable_ops import BaseResourceVariable, ResourceVariable

    owners = [keras.random.SeedGenerator, keras.src.losses.loss, keras.Layer, keras_layer, gen_stateless_random_ops_v2]
    owners += [BaseResourceVariable, ResourceVariable, keras.src.backend.Variable]
    return [(owner, name, value) for owner in owners for name, value in vars(owner).items() if callable(value)]


def fit(*parts: layers.Layer) -> keras.Model:
    model = keras.Sequential([keras.Input((3,)), *parts, layers.Dense(1)])
    model.compile(optimizer=tfdp.NoisySGD(0.1, l2_norm_clip=1.0, noise_multiplier=1.0), loss="mse")
    model.fit(X, Y, batch_size=4, verbose=0)
    return model


class SubtractsTheMean(layers.Layer):
    def call(self, x):
        return x - keras.ops.mean(x, 0)


def test_after_a_fit_and_a_refused_fit_nothing_is_shadowed():
    before = globals_of_others()
    fit(layers.Dropout(0.5))
    with pytest.raises(ValueError, match="mixes examples"):
        fit(SubtractsTheMean())
    assert not shadows.are_in_place()
    assert all(owner.__dict__[name] is value for owner, name, value in before)


def test_two_fits_in_two_threads_leave_nothing_behind():
    before, models, errors = globals_of_others(), [], []
    ready = threading.Barrier(2)

    def run() -> None:
        try:
            ready.wait(10)
            models.append(fit(layers.Dropout(0.5)))
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not errors
    assert [model.optimizer.ledger.steps for model in models] == [2, 2]
    assert not shadows.are_in_place()
    assert all(owner.__dict__[name] is value for owner, name, value in before)
