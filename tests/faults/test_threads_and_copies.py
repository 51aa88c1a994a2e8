"""Several threads, copies, forgotten sessions and long ledgers: no step is lost, and none is counted for another model."""

import copy
import pickle
import threading
import time

import keras
import pytest

import tfdp.accounting as accounting
from benchmarks.faults import X, Y, counting_model, steps_in_the_weights
from tfdp.accounting import GaussianEvent, Ledger, Line, NotPrivateEvent, Poisson


def fit(model, steps, **arguments):
    model.fit(X, Y, batch_size=4, steps_per_epoch=steps, verbose=0, **arguments)


def in_threads(*works) -> None:
    """Runs all at once; an error in any of them is raised here."""
    errors = []

    def run(work):
        try:
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def test_two_threads_train_two_models_and_each_ledger_has_its_own_steps():
    first, second = counting_model(), counting_model()
    in_threads(lambda: fit(first, 30), lambda: fit(second, 20))
    assert first.optimizer.ledger.steps == steps_in_the_weights(first) == 30
    assert second.optimizer.ledger.steps == steps_in_the_weights(second) == 20


def test_threads_that_price_get_what_one_alone_gets():
    ledgers = [Ledger.poisson(sampling_rate=0.01, noise_multiplier=noise, steps=100) for noise in (0.9, 1.1, 1.3)]

    def prices(accountant):
        return [accounting.epsilon(ledger, delta=1e-5, accountant=accountant) for ledger in ledgers]

    alone, found = {name: prices(name) for name in ("pld", "rdp")}, {}
    in_threads(*(lambda name=name: found.update({name: prices(name)}) for name in alone))
    assert found == alone


@pytest.fixture(scope="module")
def trained(dense_layers_count_as_proved) -> keras.Model:
    model = counting_model()
    fit(model, 4)
    return model


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda thing: pickle.loads(pickle.dumps(thing))])
def test_a_copy_of_the_optimizer_alone_keeps_the_ledger_or_is_refused(trained, copied):
    try:
        twin = copied(trained.optimizer)
    except Exception as error:
        assert str(error)
        return
    assert twin.ledger.steps >= 4


def test_a_session_that_is_cleared_between_fits_takes_nothing_out(trained):
    model = copy.deepcopy(trained)
    keras.backend.clear_session()
    fit(model, 3)
    assert model.optimizer.ledger.steps == steps_in_the_weights(model) == 7


def test_a_session_that_is_cleared_in_the_middle_of_a_fit_takes_nothing_out():
    model = counting_model()
    clear = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: keras.backend.clear_session() if batch == 2 else None
    )
    fit(model, 5, epochs=2, callbacks=[clear])
    assert model.optimizer.ledger.steps == steps_in_the_weights(model) == 10


def test_a_ledger_of_many_lines_and_of_many_steps_is_saved_priced_and_read(tmp_path):
    lines = [Line(GaussianEvent(1 + number / 1000), Poisson(0.001, 1000), 50) for number in range(2000)]
    many = Ledger([*lines, Line(NotPrivateEvent("to be seen"), Poisson(1.0), 0)])
    assert many.steps == 100_000
    begun = time.process_time()
    assert Ledger.from_json(many.to_json()) == many
    model, other = counting_model(), counting_model()
    for one in (model, other):
        one.optimizer.build(one.trainable_variables)
    model.optimizer.book.adopt(type(model.optimizer.book.read())(many))
    model.save_weights(tmp_path / "many.weights.h5")
    other.load_weights(tmp_path / "many.weights.h5")
    assert other.optimizer.ledger == many
    cost = accounting.epsilon(many, delta=1e-5, accountant="gdp")
    least, most = (
        accounting.epsilon(
            Ledger.poisson(sampling_rate=0.001, noise_multiplier=noise, steps=100_000), delta=1e-5, accountant="gdp"
        )
        for noise in (2.999, 1.0)
    )
    assert least < cost < most
    assert time.process_time() - begun < 30
