"""A file that was damaged or edited is refused, or its ledger is right, or it says that it does not know."""

import json
import random
import zipfile

import h5py
import keras
import numpy as np
import pytest

import tfdp
from benchmarks.faults import Trained, flipped, outcomes, steps_in_the_weights
from tfdp.accounting import Ledger, NotPrivateEvent
from tfdp.optimizers.saved_ledger import as_array, as_text, read_texts

BITS = {"model.weights.h5": 40, "tensors.index": 8, "tensors.data-00000-of-00001": 8, "model.keras": 5}


@pytest.fixture(scope="module")
def trained(tmp_path_factory, dense_layers_count_as_proved) -> Trained:
    return Trained(tmp_path_factory.mktemp("files"))


@pytest.fixture
def weights(trained):
    """The weights file; it is as it was afterwards."""
    path = trained.folder / "model.weights.h5"
    whole = path.read_bytes()
    yield path
    path.write_bytes(whole)


def loader(trained, file):
    return {"h5": trained.load_weights, "keras": trained.load_model}.get(file.rpartition(".")[2], trained.load_tensors)


def assert_nothing_wrong(found) -> None:
    assert not [what for what in found if what.startswith("WRONG")], found


@pytest.mark.parametrize("file", BITS)
def test_one_wrong_bit_never_hides_a_step(trained, file):
    path = trained.folder / file
    found = outcomes(trained, loader(trained, file), path, flipped(path.read_bytes(), BITS[file], random.Random(file)))
    assert sum(found.values()) == BITS[file]
    assert_nothing_wrong(found)


NAMES = ["optimizer", "vars", "ledger", "circumstances", "steps", "checksum", "_tfdp_witness", "_tfdp_past", "releases"]


@pytest.mark.parametrize("name", NAMES)
def test_a_wrong_bit_in_a_name_does_not_lose_the_ledger_in_silence(trained, weights, name):
    """HDF5 finds its parts by name, and Keras skips what it does not find."""
    content, word = weights.read_bytes(), name.encode()
    places = [place for place in range(len(content)) if content.startswith(word + b"\0", place)]
    assert places
    damaged = []
    for place in places:
        one = bytearray(content)
        one[place + len(word) - 1] ^= 1
        damaged.append(bytes(one))
    assert_nothing_wrong(outcomes(trained, trained.load_weights, weights, damaged))


@pytest.mark.parametrize("file", BITS)
def test_a_file_that_was_cut_off_is_refused(trained, file):
    content = (trained.folder / file).read_bytes()
    cut = [content[: len(content) * part // 7] for part in range(7)] + [content[:-1]]
    found = outcomes(trained, loader(trained, file), trained.folder / file, cut)
    assert all(what.startswith("refused") for what in found), found


def edit(path, name, change) -> None:
    with h5py.File(path, "r+") as file:
        group = file["optimizer/vars"]
        text = change(as_text(group[name][()]))
        del group[name]
        if text is not None:
            group[name] = as_array(text)


EDITS = {
    "fewer steps": ("ledger", lambda text: text.replace('"steps": 5', '"steps": 1')),
    "more noise": ("ledger", lambda text: text.replace('"noise_multiplier": 1.0', '"noise_multiplier": 9.0')),
    "an empty ledger": ("ledger", lambda text: Ledger().to_json()),
    "no ledger": ("ledger", lambda text: None),
    "no circumstances": ("circumstances", lambda text: None),
    "no fits": ("circumstances", lambda text: json.dumps({"fits": "[]", "calibration": None})),
    "a smaller count": ("steps", lambda text: "1"),
    "another checksum": ("checksum", lambda text: "0" * 64),
}


@pytest.mark.parametrize("case", EDITS)
def test_an_edit_is_refused_and_the_weights_that_came_along_are_not_trusted(trained, weights, case):
    edit(weights, *EDITS[case])
    model = trained.emptied()
    with pytest.raises(ValueError, match="ledger in this file was damaged or edited"):
        model.load_weights(weights)
    assert any(isinstance(line.event, NotPrivateEvent) for line in model.optimizer.ledger)


def test_a_count_of_steps_that_went_back_is_refused(trained, weights):
    (count,) = [v for v in trained.model.optimizer.variables if "released_steps" in v.path]
    (number,) = [n for n, v in enumerate(trained.model.optimizer.variables) if v is count]
    with h5py.File(weights, "r+") as file:
        file[f"optimizer/vars/{number}"][()] = 2
    with pytest.raises(ValueError, match="count of steps should be at least 5 and is 2"):
        trained.emptied().load_weights(weights)


def test_an_optimizer_that_was_taken_out_is_missed(trained, weights):
    with h5py.File(weights, "r+") as file:
        del file["optimizer"]
    with pytest.raises(ValueError, match="should list 5 releases and lists 0"):
        trained.emptied().load_weights(weights)


def test_a_model_whose_archive_was_packed_again_is_checked_as_well(trained, weights, tmp_path):
    edit(weights, *EDITS["fewer steps"])
    with zipfile.ZipFile(trained.folder / "model.keras") as archive, zipfile.ZipFile(tmp_path / "x.keras", "w") as new:
        for name in archive.namelist():
            new.writestr(name, weights.read_bytes() if name == "model.weights.h5" else archive.read(name))
    with pytest.raises(ValueError, match="checksum does not fit"):
        keras.models.load_model(tmp_path / "x.keras")


def test_whoever_computes_the_checksum_anew_is_believed(trained, weights):
    """A checksum is no signature, and docs/faults.md says so."""
    texts = trained.model.optimizer.book.as_saved(1).to_texts()
    saved = read_texts(texts)
    lie = type(saved)(type(saved.past)(Ledger(), ()), None, 0).to_texts()
    for name, text in lie.items():
        edit(weights, name, lambda _, text=text: text)
    with h5py.File(weights, "r+") as file:
        file["_tfdp_witness/vars/releases"][()] = 0
        del file["_tfdp_past"]
        for key in file["optimizer/vars"]:
            if key.isdigit() and file[f"optimizer/vars/{key}"].shape == ():
                file[f"optimizer/vars/{key}"][()] = 0
    model = trained.emptied()
    model.load_weights(weights)
    assert model.optimizer.ledger.steps == 0 < steps_in_the_weights(model)


def test_a_file_from_before_there_were_checksums_is_read(trained, weights):
    with h5py.File(weights, "r+") as file:
        del file["_tfdp_past"], file["_tfdp_witness"], file["optimizer/vars/steps"], file["optimizer/vars/checksum"]
    model = trained.load_weights(weights)
    assert model.optimizer.ledger == trained.model.optimizer.ledger
    assert model.optimizer.fits == trained.model.optimizer.fits


def test_a_ledger_that_was_edited_in_a_file_for_an_ordinary_model_is_refused_and_nothing_is_claimed(trained, weights):
    with h5py.File(weights, "r+") as file:
        group = file["_tfdp_past/vars"]
        text = as_text(group["ledger"][()]).replace('"steps": 5', '"steps": 1')
        del group["ledger"]
        group["ledger"] = as_array(text)
    model = keras.models.clone_model(trained.model)
    model.build((None, 1))
    with pytest.raises(ValueError, match="checksum does not fit"):
        model.load_weights(weights)
    assert tfdp.privacy_statement(model).epsilon is None


def test_an_edited_checkpoint_is_refused(trained):
    texts = trained.model.optimizer.book.as_saved(5).to_texts()
    for change in ({"ledger": Ledger().to_json()}, {"steps": "9"}, {"checksum": "0"}):
        model = trained.emptied()
        with pytest.raises(ValueError, match="checksum does not fit"):
            model.optimizer.book.deserialize(json.dumps(texts | change).encode())
        assert any(isinstance(line.event, NotPrivateEvent) for line in model.optimizer.ledger)
    for text in (b"", b"{}", b"[]", b"1", b"\xff"):
        with pytest.raises(ValueError, match="damaged or edited"):
            trained.emptied().optimizer.book.deserialize(text)


def test_weights_without_any_ledger_are_still_loaded(trained, tmp_path):
    """Of public pretraining, for example: the statement says since when it counts."""
    public = keras.models.clone_model(trained.model)
    public.compile(optimizer="adam", loss="mse")
    public.build((None, 1))
    public.set_weights([np.full((1, 1), 3.0)])
    public.save_weights(tmp_path / "public.weights.h5")
    model = trained.emptied()
    model.load_weights(tmp_path / "public.weights.h5")
    assert steps_in_the_weights(model) == 3 and model.optimizer.ledger == Ledger()


def test_a_file_that_fails_when_some_weights_were_read_leaves_a_model_of_which_nothing_is_claimed(trained, weights):
    """Whoever catches the error has the weights."""
    with h5py.File(weights, "r+") as file:
        del file["optimizer"]
        file["optimizer"] = h5py.SoftLink("/nowhere")
    model = trained.emptied()
    with pytest.raises((KeyError, ValueError)):
        model.load_weights(weights)
    assert steps_in_the_weights(model) == 5
    assert any(isinstance(line.event, NotPrivateEvent) for line in model.optimizer.ledger)


def test_a_file_that_is_not_there_changes_nothing(trained, tmp_path):
    model = trained.emptied()
    with pytest.raises(OSError):
        model.load_weights(tmp_path / "nothing.weights.h5")
    assert model.optimizer.ledger == Ledger()
