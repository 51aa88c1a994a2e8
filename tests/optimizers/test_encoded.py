"""EncodedDPSGD and EncodedDPAdam through fit."""

import keras
import numpy as np
import pytest

import tfdp
from tests.mechanisms.test_encoding import algorithm_2, in_full
from tests.mechanisms.test_noise_samplers import Logistic
from tests.optimizers import tiny
from tfdp.accounting import Codebook, EncodedEvent, MicrobatchedEvent, NotPrivateEvent
from tfdp.mechanisms import EncodedMechanism
from tfdp.noise import Cauchy, Laplace, StudentT, VarianceGamma

BOOK = Codebook(4, size=20)
FEW = {"codebook_size": 3}  # for targets: every magnitude is integrated for every noise that is tried
MANY_X, MANY_Y = (np.repeat(part, 50, axis=0) for part in (tiny.X, tiny.Y))


def encoded(learning_rate=0.1, kind=tfdp.EncodedDPSGD, **arguments):
    return kind(learning_rate, **{"l2_norm_clip": tiny.CLIP, "codebook_size": 20, "denoise": None} | arguments)


def noiseless(**arguments):
    return encoded(noise_multiplier=0.0, **arguments)


def expected_step(weights, x=tiny.X, y=tiny.Y, *, group=1, lot=None, learning_rate=0.1):
    gradients = tiny.clipped_gradients(weights, x, y, clip=np.inf)
    gradients = gradients.reshape(-1, group, 4).mean(1)
    mean = sum(tiny.CLIP * algorithm_2(g / tiny.CLIP, in_full(BOOK)) for g in gradients) * group / (lot or len(x))
    kernel, bias = weights
    return [kernel - learning_rate * mean[:3, None], bias - learning_rate * mean[3:]]


def test_a_step_without_noise_is_the_mean_of_the_encoded_gradients():
    model = tiny.private(noiseless())
    before = model.get_weights()
    tiny.train(model)
    tiny.assert_weights(model, expected_step(before))


def test_physical_batches_change_nothing_to_the_last_bit():
    found = []
    for limit in (None, 3, 8):
        model = tiny.private(noiseless(max_physical_batch=limit))
        tiny.train(model, steps=3)
        found.append(np.concatenate([np.ravel(w) for w in model.get_weights()]))
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])


def test_a_convolution_is_encoded_a_part_of_the_lot_at_a_time(monkeypatch):
    """All kinds of factored gradients can be cut."""
    from tfdp.mechanisms import encoding

    layers = keras.layers
    x = np.random.default_rng(0).integers(0, 9, (12, 6)).astype("int32")
    y = np.random.default_rng(1).standard_normal((12, 1)).astype("f4")

    def weights_after(numbers):
        monkeypatch.setattr(encoding, "_NUMBERS_AT_ONCE", numbers)
        keras.utils.set_random_seed(0)
        model = keras.Sequential(
            [
                keras.Input((6,), dtype="int32"),
                layers.Embedding(9, 4),
                layers.Conv1D(5, 3, activation="tanh"),
                layers.LayerNormalization(),
                layers.Dense(3, activation="tanh"),
                layers.Flatten(),
                layers.Dense(1),
            ]
        )
        model.compile(noiseless(), loss="mse")
        model.fit(x, y, batch_size=12, epochs=2, verbose=0)
        return np.concatenate([np.ravel(w) for w in model.get_weights()])

    np.testing.assert_allclose(weights_after(2**21), weights_after(700), atol=1e-6)


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("kind", [tfdp.EncodedDPSGD, tfdp.EncodedDPAdam])
def test_noisy_steps_are_taken_and_written_into_the_ledger(kind, jit_compile):
    model = tiny.private(encoded(kind=kind, noise=Laplace(0.8), denoise="ks"), jit_compile=jit_compile)
    before = model.get_weights()
    tiny.train(model, steps=3)
    (line,) = model.optimizer.ledger
    assert line.event == EncodedEvent(Laplace(0.8), BOOK)
    assert line.steps == 3
    assert all(np.isfinite(w).all() and (w != b).any() for w, b in zip(model.get_weights(), before, strict=True))


def test_xla_takes_the_same_noiseless_steps():
    plain, compiled = tiny.private(noiseless()), tiny.private(noiseless(), jit_compile=True)
    for model in (plain, compiled):
        tiny.train(model, steps=2)
    tiny.assert_weights(compiled, plain.get_weights())


def test_noise_has_the_size_it_is_priced_with():
    """A lot of records without a gradient: what moves the weights is noise alone."""
    zeros = np.zeros((8, 200), "f4")
    model = keras.Sequential([keras.Input((200,)), keras.layers.Dense(200, use_bias=False)])
    noise = StudentT(5, stddev=2.0)
    model.compile(encoded(1.0, noise=noise, noise_multiplier=0.5, codebook_size=2), loss="mse")
    before = model.get_weights()[0]
    model.fit(zeros, zeros, batch_size=8, verbose=0)
    moved = (model.get_weights()[0] - before) * 8 / tiny.CLIP
    assert moved.std() == pytest.approx(1.0, rel=0.05)
    assert np.quantile(moved, 0.75) == pytest.approx(noise.scaled(0.5).unit, rel=0.05)


def test_examples_that_are_not_finite_contribute_nothing_and_are_counted():
    x = tiny.X.copy()
    x[2, 0] = np.nan
    model = tiny.private(noiseless())
    before = model.get_weights()
    tiny.train(model, x, tiny.Y)
    rest = np.arange(8) != 2
    tiny.assert_weights(model, expected_step(before, tiny.X[rest], tiny.Y[rest], lot=8))
    assert model.optimizer.non_finite_examples == 1


def test_a_target_finds_the_size_of_the_noise():
    model = tiny.private(
        encoded(noise=StudentT(9, stddev=3.0), target_epsilon=2.0, delta=1e-5, accountant="rdp", **FEW)
    )
    model.fit(MANY_X, MANY_Y, batch_size=100, epochs=2, verbose=0)
    (line,) = model.optimizer.ledger
    assert line.event.noise == StudentT(9, stddev=3.0).scaled(model.optimizer.mechanism.noise_multiplier)
    assert 1.8 <= tfdp.accounting.epsilon(model.optimizer.ledger, delta=1e-5, accountant="rdp") <= 2.0
    assert tfdp.privacy_statement(model).epsilon <= 2.0


@pytest.mark.parametrize("kind", [tfdp.EncodedDPSGD, tfdp.EncodedDPAdam])
def test_the_configuration_round_trips(kind):
    optimizer = encoded(kind=kind, noise=Cauchy(0.5), microbatch_size=2, as_published=True, denoise="laplacian")
    again = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    assert again.get_config() == optimizer.get_config()
    assert again.mechanism.noise == Cauchy(0.5)
    assert (again.mechanism.microbatch_size, again.denoise, again.mechanism.noise_multiplier) == (2, "laplacian", 1.0)


def test_a_mechanism_of_ones_own_optimizer_round_trips():
    optimizer = tfdp.PrivateOptimizer("adam", EncodedMechanism(1.0, 1.0, noise=Laplace(2.0)), denoise="ks")
    again = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    assert again.mechanism.noise == Laplace(2.0) and again.denoise == "ks"


def test_a_run_that_was_saved_goes_on_with_its_noise_and_codebook(tmp_path):
    model = tiny.private(encoded(noise=Laplace(0.8)))
    tiny.train(model, steps=2)
    model.save(tmp_path / "model.keras")
    assert (tmp_path / "model.keras").stat().st_size < 200_000  # codewords are not in it
    loaded = keras.models.load_model(tmp_path / "model.keras")
    tiny.train(loaded, steps=3)
    (line,) = loaded.optimizer.ledger
    assert line.event == EncodedEvent(Laplace(0.8), BOOK)
    assert line.steps == 5
    again = tfdp.accounting.Ledger.from_json(loaded.optimizer.ledger.to_json())
    assert again == loaded.optimizer.ledger


def test_a_family_of_ones_own_is_trained_with_saved_and_priced(tmp_path):
    model = tiny.private(encoded(noise=Logistic(0.6), denoise="ks"))
    model.fit(MANY_X, MANY_Y, batch_size=50, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded.optimizer.mechanism.noise == Logistic(0.6)
    assert loaded.optimizer.ledger == model.optimizer.ledger
    assert loaded.optimizer.ledger.lines[0].event == EncodedEvent(Logistic(0.6), BOOK)
    (first, *_) = tfdp.privacy_statement(loaded, delta=1e-5).claims
    assert str(first.status) == "proven" and np.isfinite(first.epsilon)


def test_microbatches_are_encoded_by_their_mean_and_prove_nothing():
    model = tiny.private(noiseless(microbatch_size=2, as_published=True))
    before = model.get_weights()
    tiny.train(model)
    tiny.assert_weights(model, expected_step(before, group=2))


def test_the_statement_of_microbatches_repeats_the_papers_claim_with_the_reason():
    model = tiny.private(encoded(microbatch_size=4, as_published=True))
    tiny.train(model, steps=2)
    (line,) = model.optimizer.ledger
    assert line.event == MicrobatchedEvent(StudentT(9, stddev=1.0), BOOK, 4)
    statement = tfdp.privacy_statement(model)
    assert statement.epsilon is None
    none, published = statement.claims
    assert str(none.status) == "none" and str(published.status) == "as published"
    as_claimed = tfdp.accounting.Ledger().record(line.event.claimed, line.sampling, 2)
    assert published.epsilon == tfdp.accounting.epsilon(as_claimed, delta=statement.delta, accountant="rdp")
    assert "share a microbatch" in published.reasons[0]
    assert "share a microbatch" in str(statement).replace("\n    ", " ")


def test_the_statement_of_encoded_gradients_is_proven_and_pays_for_missing_tails():
    model = tiny.private(encoded())
    model.fit(MANY_X, MANY_Y, batch_size=10, verbose=0)
    statement = tfdp.privacy_statement(model, delta=1e-5)
    first = statement.claims[0]
    assert str(first.status) == "proven" and 0 < first.epsilon < 100
    assert "missing tails" in first.how
    assert "20 public codewords" in str(statement).replace("\n    ", " ")


def test_with_a_seed_or_without_noise_nothing_is_claimed():
    for optimizer in (noiseless(), encoded(noise_seed=1)):
        model = tiny.private(optimizer)
        tiny.train(model)
        (line,) = model.optimizer.ledger
        assert isinstance(line.event, NotPrivateEvent)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"microbatch_size": 2}, "as_published=True"),
        ({"microbatch_size": 0}, "microbatch_size must be at least 1"),
        ({"microbatch_size": 2, "as_published": True, "target_epsilon": 1.0, "delta": 1e-5}, "no target can be kept"),
        ({"microbatch_size": 4, "as_published": True, "max_physical_batch": 6}, "multiple of 4"),
        ({"l2_norm_clip": 1e-30}, "must lie between 1e-20 and 1e\\+20"),
        ({"noise": 1.0}, "noise must be a tfdp.noise.Noise"),
        ({"noise": VarianceGamma(0.4, 1.0)}, "cannot be priced: its density is not finite at 0"),
        ({"noise_multiplier": -1.0}, "noise_multiplier must be"),
        ({"noise_multiplier": 1.0, "target_epsilon": 1.0, "delta": 1e-5}, "exactly one of"),
        ({"codebook_size": 0}, "codebook_size must be at least 1"),
        ({"denoise": "median"}, "denoise must be 'ks', 'laplacian' or None"),
        ({"as_published": 1}, "as_published must be True or False"),
    ],
)
def test_wrong_arguments_are_refused_with_what_to_write(arguments, message):
    with pytest.raises(ValueError, match=message):
        encoded(**arguments)


def test_a_target_in_renyi_terms_is_a_filter():
    model = tiny.private(encoded(target_epsilon=4.0, delta=1e-5, accountant="rdp", **FEW))
    model.fit(MANY_X, MANY_Y, batch_size=50, verbose=0)
    assert any(claim.how.startswith("filter") for claim in tfdp.privacy_statement(model).claims)
