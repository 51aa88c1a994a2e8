"""Files of other runs, and of other branches of one: whose releases they hold, and that none is taken for another's."""

import json
import pathlib

import keras
import pytest
import tensorflow as tf

from tests.optimizers import tiny
from tfdp.optimizers.saved_ledger import read_texts

EVERY_WAY = ("weights", "checkpoint")


def trained(steps: int = 5, **arguments) -> keras.Model:
    model = tiny.private(tiny.noisy(**arguments))
    tiny.train(model, steps=steps)
    return model


def carry(way: str, one: keras.Model, other: keras.Model, folder: pathlib.Path) -> None:
    """What `one` has goes through a file into `other`."""
    if way == "weights":
        one.save_weights(folder / "state.weights.h5")
        other.load_weights(folder / "state.weights.h5")
    else:
        tf.train.Checkpoint(model=one, optimizer=one.optimizer).write(str(folder / "state"))
        tf.train.Checkpoint(model=other, optimizer=other.optimizer).read(str(folder / "state"))


@pytest.mark.parametrize("way", EVERY_WAY)
def test_releases_of_another_run_with_equal_settings_are_added(way, tmp_path):
    model = trained(5)
    carry(way, trained(4), model, tmp_path)
    assert [line.steps for line in model.optimizer.ledger] == [9]
    carry(way, model, fresh := tiny.private(tiny.noisy()), tmp_path)
    assert fresh.optimizer.ledger.steps == 9


def by_a_checkpoint_of_the_model(one, other, folder):
    tf.train.Checkpoint(model=one).write(str(folder / "state"))
    tf.train.Checkpoint(model=other).read(str(folder / "state"))


def by_weights(name, load=lambda model, path: model.load_weights(path), **saving):
    def carried(one, other, folder):
        save = one.save if name.endswith(".keras") else one.save_weights
        save(folder / name, **saving)
        load(other, folder / name)

    return carried


OTHER_WAYS = {
    "Checkpoint(model=)": by_a_checkpoint_of_the_model,
    "skip_mismatch": by_weights("w.weights.h5", lambda model, path: model.load_weights(path, skip_mismatch=True)),
    "shards": by_weights("w.weights.json", max_shard_size=0.01),
    "a whole model's file": by_weights("w.keras"),
    "keras.saving": by_weights("w.weights.h5", keras.saving.load_weights),
}


@pytest.mark.parametrize("way", OTHER_WAYS)
def test_the_ledger_comes_with_the_weights(way, tmp_path):
    model = trained(3)
    OTHER_WAYS[way](trained(4), model, tmp_path)
    assert [line.steps for line in model.optimizer.ledger] == [7]


def test_weights_of_two_runs_in_one_model_cost_both(tmp_path):
    """The bias of one run, the kernel of the other."""
    other, own = trained(5), trained(5)
    parts = [{"bias": model.layers[0].bias.value, "optimizer": model.optimizer} for model in (other, own)]
    tf.train.Checkpoint(**parts[0]).write(str(tmp_path / "part"))
    tf.train.Checkpoint(**parts[1]).read(str(tmp_path / "part"))
    assert own.optimizer.ledger.steps == 10


@pytest.mark.parametrize("way", EVERY_WAY)
def test_a_model_that_goes_back_to_its_own_checkpoint_has_every_release_once(way, tmp_path):
    model = trained(3)
    state = [tmp_path / "own.weights.h5", str(tmp_path / "own")]
    model.save_weights(state[0])
    tf.train.Checkpoint(model=model, optimizer=model.optimizer).write(state[1])
    tiny.train(model, steps=2)
    for _ in range(2):
        if way == "weights":
            model.load_weights(state[0])
        else:
            tf.train.Checkpoint(model=model, optimizer=model.optimizer).read(state[1])
        tiny.train(model, steps=2)
    assert model.optimizer.ledger.steps == 9


def test_a_checkpoint_ahead_of_the_model_replaces_what_it_holds(tmp_path):
    model = trained(3)
    model.save(tmp_path / "early.keras")
    tiny.train(model, steps=4)
    model.save_weights(tmp_path / "late.weights.h5")
    early = keras.models.load_model(tmp_path / "early.keras")
    early.load_weights(tmp_path / "late.weights.h5")
    assert early.optimizer.ledger.steps == 7


def test_a_branch_that_loads_the_other_branch_misses_none_of_both(tmp_path):
    model = trained(3)
    model.save(tmp_path / "fork.keras")
    tiny.train(model, steps=4)
    model.save_weights(tmp_path / "one.weights.h5")
    branch = keras.models.load_model(tmp_path / "fork.keras")
    tiny.train(branch, steps=2)
    branch.load_weights(tmp_path / "one.weights.h5")
    assert branch.optimizer.ledger.steps >= 3 + 4 + 2


def test_steps_that_were_planned_in_one_run_are_planned_beside_the_others_releases(tmp_path):
    model = tiny.private(tiny.noisy())
    stops = keras.callbacks.LambdaCallback(on_epoch_end=lambda *_: setattr(model, "stop_training", True))
    tiny.train(model, steps=1, epochs=6, callbacks=[stops])
    carry("weights", trained(4), model, tmp_path)
    assert model.optimizer.ledger.steps == 1 + 4
    assert max(record.planned.steps for record in model.optimizer.fits) == 6 + 4


def test_a_file_from_before_there_were_names_is_of_a_run_of_its_own(tmp_path):
    model = trained(5)
    saved = model.optimizer.book.as_saved(5)
    texts = saved.to_texts()
    circumstances = json.loads(texts["circumstances"])
    del circumstances["origins"]
    read = read_texts({"ledger": texts["ledger"], "circumstances": json.dumps(circumstances)}).past
    assert read.ledger.steps == 5
    assert read.joined(read).ledger.steps == 5
    assert read.joined(saved.past).ledger.steps == 10


def test_names_of_fits_come_from_the_operating_system():
    """Runs with the same seed for all have names of their own."""
    names = []
    for _ in range(2):
        keras.utils.set_random_seed(0)
        names.append(trained(1).optimizer.book.read().origins)
    assert names[0] != names[1]
