"""Arguments of ``fit``, kinds of data, callbacks."""

import pathlib
import tempfile

import keras
import numpy as np
import tensorflow as tf

from tests.compatibility.cases import LABELS, SIZE, X, Y, case, compiled, linear, noisy, shared, train
from tests.compatibility.compiling import CROSSENTROPY, two

FIT = "Arguments of fit"
DATA = "Kinds of data"
CALLBACKS = "Callbacks"


@case(
    FIT,
    "`batch_size=` (the expected size of a lot), `epochs=`, `initial_epoch=`, `verbose=`, `shuffle=`, `steps_per_epoch=`",
)
def plain():
    train(shared(), epochs=3, initial_epoch=1, shuffle=True, steps_per_epoch=2)


@case(FIT, "`batch_size=` left out, or above the number of records")
def large_lots():
    train(shared(), batch_size=None)


@case(FIT, "`validation_split=`, `validation_data=`, `validation_steps=`, `validation_batch_size=`, `validation_freq=`")
def validation():
    train(compiled(), batch_size=4, validation_split=0.25)
    train(shared(), validation_data=(X, Y), validation_batch_size=4, validation_steps=1, validation_freq=1)


@case(FIT, "`sample_weight=`")
def sample_weight():
    train(compiled(), sample_weight=abs(X[:, 0]))


@case(FIT, "`class_weight=`")
def class_weight():
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(3, "softmax")])
    train(compiled(model, loss=CROSSENTROPY), y=LABELS, class_weight={0: 1.0, 1: 2.0, 2: 0.5})


@case(FIT, "`class_weight=` with several outputs")
def class_weights():
    train(compiled(two(), loss=[CROSSENTROPY, "mse"]), y=[LABELS, Y], class_weight={0: 1.0, 1: 2.0, 2: 0.5})


@case(FIT, "`callbacks=` as a list or a `CallbackList`")
def callbacks():
    train(shared(), callbacks=[keras.callbacks.History()])
    listed = keras.callbacks.CallbackList([keras.callbacks.History()], model=shared())
    train(shared(), callbacks=listed)


@case(DATA, "numpy arrays, TensorFlow tensors, memory maps, h5py data sets, lists and dicts of them")
def arrays():
    import h5py

    train(shared(), tf.constant(X), tf.constant(Y))
    with tempfile.TemporaryDirectory() as folder:
        np.save(f"{folder}/x.npy", X)
        train(shared(), np.load(f"{folder}/x.npy", mmap_mode="r"), Y)
        with h5py.File(f"{folder}/x.h5", "w") as file:
            train(shared(), file.create_dataset("x", data=X), file.create_dataset("y", data=Y))
    inputs = {"a": keras.layers.Input((4,), name="a"), "b": keras.layers.Input((4,), name="b")}
    model = keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Add()([inputs["a"], inputs["b"]])))
    train(compiled(model), {"a": X, "b": X})


@case(DATA, "a random-access source of records (`__len__` and `__getitem__`)")
def source():
    class Records:
        def __len__(self):
            return SIZE

        def __getitem__(self, number):
            return {"x": X[number], "y": Y[number]}

    shared().fit(Records(), batch_size=8, verbose=0)


@case(DATA, "a `tf.data.Dataset`: `from_tensor_slices(...).shuffle(...).batch(...)`")
def dataset():
    shared().fit(tf.data.Dataset.from_tensor_slices((X, Y)).shuffle(SIZE).batch(8), verbose=0)


@case(DATA, "a `tf.data.Dataset` of which `tfdp.data.declare_sampling` says how it samples")
def declared():
    import tfdp

    batches = tf.data.Dataset.from_tensor_slices((X, Y)).shuffle(SIZE).batch(8)
    shared().fit(tfdp.data.declare_sampling(batches, "shuffled", size=SIZE, batch_size=8), verbose=0)


class Batches(keras.utils.PyDataset):
    def __len__(self):
        return 2

    def __getitem__(self, number):
        return X[number * 8 :][:8], Y[number * 8 :][:8]


@case(DATA, "`keras.utils.PyDataset`")
def py_dataset():
    shared().fit(Batches(), verbose=0)


@case(DATA, "a generator")
def generator():
    shared().fit(((X[:8], Y[:8]) for _ in range(4)), steps_per_epoch=2, verbose=0)


@case(DATA, "sparse and ragged tensors")
def sparse():
    train(shared(), tf.sparse.from_dense(X))


@case(DATA, "NaN in features (that record contributes 0)")
def not_a_number():
    x = X.copy()
    x[0] = np.nan
    train(shared(), x)


@case(
    CALLBACKS,
    "LearningRateScheduler, ReduceLROnPlateau, EarlyStopping, TerminateOnNaN, LambdaCallback, ProgbarLogger, History",
)
def steering():
    keep = keras.callbacks
    listed = [
        keep.LearningRateScheduler(lambda epoch, rate: rate * 0.5),
        keep.ReduceLROnPlateau(monitor="loss", patience=0),
    ]
    listed += [keep.EarlyStopping(monitor="loss", patience=9, restore_best_weights=True), keep.TerminateOnNaN()]
    listed += [keep.LambdaCallback(on_epoch_end=lambda epoch, logs: None), keep.History()]
    train(shared(), epochs=2, callbacks=listed)


@case(CALLBACKS, "ModelCheckpoint, CSVLogger (TensorBoard reads the same logs, where it is installed)")
def writing():
    with tempfile.TemporaryDirectory() as folder:
        listed = [
            keras.callbacks.ModelCheckpoint(f"{folder}/best.keras"),
            keras.callbacks.CSVLogger(f"{folder}/log.csv"),
        ]
        train(shared(), callbacks=listed)
        assert len(list(pathlib.Path(folder).iterdir())) == 2


@case(CALLBACKS, "BackupAndRestore")
def backup():
    with tempfile.TemporaryDirectory() as folder:
        train(compiled(), callbacks=[keras.callbacks.BackupAndRestore(folder)])


@case(CALLBACKS, "SwapEMAWeights")
def averages():
    train(
        compiled(optimizer=noisy(use_ema=True)),
        epochs=2,
        callbacks=[keras.callbacks.SwapEMAWeights(swap_on_epoch=True)],
    )


class Sets(keras.callbacks.Callback):
    def __init__(self, change):
        super().__init__()
        self.change = change

    def on_epoch_begin(self, epoch, logs=None):
        if epoch == 1:
            self.change(self.model)


@case(CALLBACKS, "a callback that sets `model.optimizer.learning_rate`, or `model.stop_training`")
def sets_the_rate():
    def change(model):
        model.optimizer.learning_rate = 0.01
        model.stop_training = True

    train(shared(), epochs=2, callbacks=[Sets(change)])


@case(CALLBACKS, "a callback that sets `model.optimizer.noise_multiplier`")
def sets_the_noise():
    def change(model):
        model.optimizer.noise_multiplier = 5.0

    train(compiled(), epochs=2, callbacks=[Sets(change)])


@case(CALLBACKS, "a callback that sets `model.optimizer.mechanism.noise_multiplier`")
def sets_the_mechanisms_noise():
    def change(model):
        model.optimizer.mechanism.noise_multiplier = 5.0

    train(compiled(), epochs=2, callbacks=[Sets(change)])


@case(CALLBACKS, "a callback that freezes a layer")
def freezes():
    def change(model):
        model.layers[0].trainable = False

    train(compiled(linear(keras.layers.Dense(3))), epochs=2, callbacks=[Sets(change)])


@case(CALLBACKS, "a callback that calls `fit`")
def fits():
    train(compiled(), epochs=2, callbacks=[Sets(lambda model: model.fit(X, Y, batch_size=8, verbose=0))])
