"""What ``fit`` is given, turned into lots whose sampling is known."""

import contextlib
from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf
from keras.src.trainers.data_adapters import array_slicing, data_adapter_utils
from keras.src.trainers.data_adapters.tf_dataset_adapter import make_class_weight_map_fn

from tfdp.accounting import checks
from tfdp.data import DeclaredDataset, PoissonBatches, understood
from tfdp.gradients import StateAssigned
from tfdp.gradients.losses import overrides_the_loss

KERAS_BATCH_SIZE = 32


def lots_of_fit(arguments: dict, public_size: int | None) -> tuple[PoissonBatches | DeclaredDataset, dict]:
    """The lots that ``fit``'s arguments ask for, and the arguments that are left for Keras.

    Raises:
        ValueError: data whose sampling can't be known, or that needs another argument; says what to write.
    """
    arguments = _with_whole_numbers(arguments)
    x, y, sample_weight = (arguments.pop(name) for name in ("x", "y", "sample_weight"))
    class_weight, batch_size = arguments.pop("class_weight"), arguments.pop("batch_size")
    split = arguments.pop("validation_split")
    _refuse_unknown_sampling(x)
    _check_split(split)
    if isinstance(x, tf.data.Dataset):
        _refuse_extra(
            x, {"y": y, "sample_weight": sample_weight, "batch_size": batch_size, "validation_split": split or None}
        )
        if class_weight is not None:
            x = x.map(make_class_weight_map_fn(class_weight))
        found = understood(x, public_size)
        if arguments["verbose"] != 0:
            print(found.said)
        if arguments["steps_per_epoch"] is None:
            arguments["steps_per_epoch"] = found.steps_per_epoch
        return _with_lots(found.lots, arguments)
    if split and public_size is not None:
        raise ValueError(
            "validation_split can't go with public_size: one record more would move another one across the boundary. Split "
            "the data beforehand and give validation_data."
        )
    if isinstance(x, PoissonBatches | DeclaredDataset):
        given = {
            "y": y,
            "sample_weight": sample_weight,
            "class_weight": class_weight,
            "batch_size": batch_size,
        }
        _refuse_extra(x, given | {"validation_split": split or None, "public_size": public_size})
        lots = x
    else:
        if split and arguments["validation_data"] is None:
            (x, y, sample_weight), arguments["validation_data"] = array_slicing.train_validation_split(
                (x, y, sample_weight), validation_split=split
            )
        if class_weight is not None:
            if sample_weight is not None:
                raise ValueError("Give class_weight or sample_weight, not both.")
            if y is None or keras.tree.is_nested(y):
                raise ValueError("class_weight needs one array of labels y; for several outputs give sample_weight.")
            sample_weight = data_adapter_utils.class_weight_to_sample_weights(y, class_weight)
        lots = PoissonBatches(
            x,
            y,
            sample_weight,
            batch_size=KERAS_BATCH_SIZE if batch_size is None else batch_size,
            public_size=public_size,
        )
    if arguments["steps_per_epoch"] is None:
        arguments["steps_per_epoch"] = lots.steps_per_epoch
    return _with_lots(lots, arguments)


def _with_lots(
    lots: PoissonBatches | DeclaredDataset, arguments: dict
) -> tuple[PoissonBatches | DeclaredDataset, dict]:
    if arguments["steps_per_epoch"] is None:
        raise ValueError("A dataset that repeats without end needs steps_per_epoch=.")
    if arguments["validation_batch_size"] is None and arguments["validation_data"] is not None:
        arguments["validation_batch_size"] = None if _is_pipeline(arguments["validation_data"]) else lots.batch_size
    arguments["shuffle"] = False  # lots are random as they come
    return lots, arguments


def _refuse_extra(data: Any, given: dict) -> None:
    extra = [name for name, value in given.items() if value is not None]
    if extra:
        named, kind = ", ".join(f"{name}=" for name in extra), type(data).__name__
        if isinstance(data, tf.data.Dataset):
            kind = "tf.data.Dataset"
            if extra == ["batch_size"]:
                raise ValueError("The dataset is batched already: leave batch_size= out of fit.")
        raise ValueError(f"Arguments that go with arrays, not with a {kind}: leave {named} out of fit.")


def _with_whole_numbers(arguments: dict) -> dict:
    least = {"epochs": 0, "initial_epoch": 0, "steps_per_epoch": 1}
    found = {
        name: checks.count(name, arguments[name], "write a whole number", at_least)
        for name, at_least in least.items()
        if arguments[name] is not None
    }
    return arguments | found


def _check_split(split: Any) -> None:
    advice = "write the share of records to validate with, such as 0.1"
    if split is not None and checks.non_negative("validation_split", split, advice) >= 1:
        raise ValueError(f"validation_split must be below 1, got {split!r}: {advice}")


def check_types(model: keras.Model, record_spec: tuple) -> None:
    """Raises a ValueError if the model's inputs or its loss can't compute with records of these types.

    Found in the middle of a step, it would be an error of TensorFlow's that names no argument.
    """
    x, y, sample_weight = (*record_spec, None, None)[:3]
    _check_numbers("sample_weight", sample_weight)
    inputs, given = keras.tree.flatten(getattr(model, "inputs", None) or []), tf.nest.flatten(x)
    for expected, spec in zip(inputs, given, strict=True) if len(inputs) == len(given) else ():
        if spec is None:
            raise ValueError(
                f"x for the optional input {expected.name!r} is None, which private training can't leave out. Train a model without that "
                f"input, or give it an array."
            )
        if not keras.backend.is_keras_tensor(expected) or expected.dtype not in ("string", spec.dtype.name):
            _check_numbers(f"x (for the input {expected.name!r})", spec)
    if model._compile_loss is None or overrides_the_loss(model):
        return
    _check_numbers("y", y)
    if y is None:
        raise ValueError(
            "y is missing: the model was compiled with a loss, which compares predictions with it. Give y."
        )


def _check_numbers(name: str, part: Any) -> None:
    for spec in tf.nest.flatten(part):
        if spec is not None and (spec.dtype == tf.string or spec.dtype.is_complex):
            kind = "texts" if spec.dtype == tf.string else "complex numbers"
            raise ValueError(f"{name} holds {kind}, where real numbers are needed. Turn them into such beforehand.")


@contextlib.contextmanager
def told_if_texts(model: keras.Model, record_spec: tuple) -> Iterator[None]:
    """Where a model without declared inputs fails on texts, as it is built, its failure is told by its reason."""
    try:
        yield
    except Exception as error:
        texts = any(spec is not None and spec.dtype == tf.string for spec in tf.nest.flatten(record_spec[0]))
        if not texts or isinstance(error, StateAssigned):
            raise
        raise ValueError(
            f"x holds texts, and the model {model.name!r} fails on them. Where it needs real numbers, turn them into such beforehand "
            f"(x.astype('float32')); where it reads texts, begin it with a layer such as TextVectorization. ({type(error).__name__})"
        ) from error


def _is_pipeline(data: Any) -> bool:
    return not isinstance(data, tuple | list)


def _refuse_unknown_sampling(x: Any) -> None:
    if isinstance(x, keras.utils.PyDataset):
        raise ValueError(
            f"Which records are in which batch of a {type(x).__name__} can't be seen, and the privacy of the run depends on it. If each "
            'is in one batch at most, say so: tfdp.data.declare_sampling(dataset, "shuffled", size=number_of_records, batch_size=...); '
            "that is accounted without amplification. With arrays, or a source whose __getitem__(i) is record number i and whose "
            "__len__ is their number, lots are drawn for you, at more privacy for the same noise."
        )
    if hasattr(x, "__next__") and not hasattr(x, "__getitem__"):
        raise ValueError(
            "How a generator samples its batches can't be known, and the privacy of the run depends on it. Give fit arrays or a "
            "random-access source (anything with __len__ and __getitem__): lots are then drawn for you. A generator of single "
            "records, each once: tf.data.Dataset.from_generator(...).cache().batch(...), which is read once."
        )
    if type(x).__module__.split(".")[0] == "grain":
        raise ValueError(
            "How a grain data set samples its batches can't be seen. Give fit its source, or arrays: lots are then drawn for you. A KerasHub "
            "task preprocesses with tf.data if it is given a tf.data.Dataset: tf.data.Dataset.from_tensor_slices((x, y)).batch(...)."
        )
    if type(x).__module__.startswith("torch.utils.data") and type(x).__name__ == "DataLoader":
        raise ValueError("How a DataLoader samples its batches can't be known. Give fit its dataset or arrays.")
