"""How a private optimizer reaches the model: the one place where Keras is extended from outside.

Keras shows an optimizer the weights and a batch gradient, never the model; per-example gradients need the model. There is
no extension point for that, so importing this module wraps ``compile``, ``fit``, ``train_on_batch``, ``load_weights`` and
``get_compile_config`` once, on the class of ``keras.Model.__mro__`` that defines each (wrapping ``compile`` on ``keras.Model``
itself breaks ``load_model``, which compares it with the base class's). Compiling with a PrivateOptimizer gives that one model a private ``train_step``;
compiling with an ordinary optimizer takes it away again. Models that are not compiled so run Keras's own code untouched.
"""

import contextlib
import functools
import inspect
import weakref
import zlib
from collections.abc import Iterator

import keras

from tfdp.accounting import FitRecord, Ledger
from tfdp.accounting.exposure import BOOKS, expose
from tfdp.optimizers.past_of_weights import book_of, give_book, past_of, sign, take_in_others
from tfdp.optimizers.private_optimizer import ONLY_FIT, PrivateOptimizer
from tfdp.optimizers.saved_ledger import Witness
from tfdp.optimizers.training import PrivateTraining

_ATTACHED = "_tfdp_training"  # on a model: its PrivateTraining while a private optimizer is compiled in
_WITNESS = "_tfdp_witness"  # on a model with a private optimizer: goes into files beside it
_OWNER = "_tfdp_owner"  # on a weight: the model that trains it privately
_STEPS = ("train_step", "test_step", "predict_step")  # on a model with a private optimizer: its PrivateTraining's
_TRAINS = "_tfdp_model"  # on a private optimizer: the model it was compiled into last


def install() -> None:
    """Wrap the methods, once."""
    wrappers = {
        "compile": _wrap_compile,
        "fit": _wrap_fit,
        "train_on_batch": _wrap_train_on_batch,
        "load_weights": _wrap_load_weights,
        "get_compile_config": _wrap_get_compile_config,
    }
    for name, wrap in wrappers.items():
        definer = next(c for c in keras.Model.__mro__ if name in c.__dict__)
        original = definer.__dict__[name]
        if not getattr(original, "_tfdp", False):
            wrapped = functools.wraps(original)(wrap(original))
            wrapped._tfdp = True
            setattr(definer, name, wrapped)


def training_of(model: keras.Model) -> PrivateTraining | None:
    """The private training compiled into the model, or None."""
    return model.__dict__.get(_ATTACHED)


def ledger_of(model: keras.Model) -> Ledger:
    """Everything that the weights of this model object were trained with: over all its compilations, and through others."""
    return past_of(model).ledger


def fits_of(model: keras.Model) -> tuple[FitRecord, ...]:
    """The circumstances of the fits that wrote the model's ledger."""
    return past_of(model).fits


def _wrap_compile(original):
    signature = inspect.signature(original)

    def compile(self, *args, **kwargs):
        bound = signature.bind(self, *args, **kwargs)
        given = bound.arguments.get("optimizer", signature.parameters["optimizer"].default)
        if isinstance(given, type) and issubclass(given, PrivateOptimizer):
            raise ValueError(
                f"Give compile an optimizer, not its class: {given.__name__}(l2_norm_clip=..., noise_multiplier=...)."
            )
        optimizer = keras.optimizers.get(given) if given is not None else None
        if isinstance(optimizer, keras.optimizers.LossScaleOptimizer) and isinstance(
            optimizer.inner_optimizer, PrivateOptimizer
        ):
            raise ValueError(
                "LossScaleOptimizer around a private optimizer would skip noised steps. Compile with the private optimizer "
                "itself: float16 gradients are scaled inside the private step."
            )
        if isinstance(optimizer, keras.optimizers.MultiOptimizer):
            _check_parts(optimizer)
        private = isinstance(optimizer, PrivateOptimizer)
        if private:
            _check_model(self, optimizer)
            bound.arguments["optimizer"] = optimizer
            bound.arguments["auto_scale_loss"] = False
            _check_owners(self)
        before = training_of(self)
        if before is not None and before.is_running:
            raise RuntimeError("compile can't be called while fit is running on this model: its limits are settled.")
        result = original(*bound.args, **bound.kwargs)
        _detach(self)
        if private:
            self.__dict__[_ATTACHED] = training = PrivateTraining(self, optimizer, before)
            for name in _STEPS:
                self.__dict__[name] = getattr(training, name)
            self.__dict__[_WITNESS] = Witness(optimizer.book)
            give_book(self, optimizer.book)
            optimizer.__dict__[_TRAINS] = weakref.ref(self)
        return result

    return compile


def _wrap_get_compile_config(original):
    def get_compile_config(self):
        training = training_of(self)
        if (
            training is not None
        ):  # saving as legacy .h5 takes the optimizer out, and a copy would train with Keras's default
            self._compile_config.config["optimizer"] = training.optimizer
        return original(self)

    return get_compile_config


def _detach(model: keras.Model) -> None:
    training = model.__dict__.pop(_ATTACHED, None)
    if training is not None:
        for name in _STEPS:
            model.__dict__.pop(name, None)
        model.__dict__.pop(_WITNESS, None)


def _check_model(model: keras.Model, optimizer: PrivateOptimizer) -> None:
    for name in ("train_step", "make_train_function"):
        definer = next(c for c in keras.Model.__mro__ if name in c.__dict__)
        on_instance = name in model.__dict__ and training_of(model) is None
        if getattr(type(model), name) is not getattr(definer, name) or on_instance:
            raise ValueError(
                f"{type(model).__name__} has a {name} of its own, which private training would have to replace: its "
                "updates would not be clipped and noised. Put what it does into call() and compute_loss(), with add_loss or self.losses "
                "for what layers add, and leave the step to fit. Of several networks with optimizers of their own, as in a GAN, make a model "
                "for each, in which the others are frozen: what sees records (a discriminator) gets the private optimizer."
            )
    other = _trained_by(optimizer)
    if other is not None and other is not model and getattr(training_of(other), "optimizer", None) is optimizer:
        raise ValueError(
            f"This optimizer already trains the model {other.name!r}, and its ledger speaks of that one. Make an optimizer "
            "for each model."
        )


def _check_parts(optimizer: keras.optimizers.MultiOptimizer) -> None:
    if any(isinstance(part, PrivateOptimizer) for part in optimizer.optimizers):
        raise ValueError(
            "A private optimizer inside MultiOptimizer would clip the gradients of its own weights alone, not those of the others. "
            "Turn them around: tfdp.PrivateOptimizer(keras.optimizers.MultiOptimizer(...), "
            "tfdp.mechanisms.GaussianMechanism(l2_norm_clip=..., noise_multiplier=...)), with ordinary optimizers inside."
        )


def _trained_by(optimizer: PrivateOptimizer) -> keras.Model | None:
    return optimizer.__dict__.get(_TRAINS, lambda: None)()


def _check_owners(model: keras.Model) -> None:
    """Weights that another model trains privately must not be trained through this one past that model's ledger."""
    for variable in model.trainable_variables:
        owner = variable.__dict__.get(_OWNER, lambda: None)()
        if owner is not None and owner is not model and training_of(owner) is not None:
            raise ValueError(
                f"The weight {variable.path!r} is trained privately by the model {owner.name!r}. Training it through "
                f"{model.name!r} as well would not be in that model's ledger. Freeze it here ({owner.name}.trainable = "
                f"False), or train {owner.name!r} alone: evaluate and predict work through both."
            )


def _begin_private_training(model: keras.Model) -> None:
    book = training_of(model).optimizer.book
    for variable in model.trainable_variables:
        variable.__dict__[_OWNER] = weakref.ref(model)
    sign(model.trainable_variables, book)
    take_in_others(model, book)


def _wrap_fit(original):
    signature = inspect.signature(original)

    def fit(self, *args, public_size=None, **kwargs):
        training = training_of(self)
        if training is None:
            if public_size is not None:
                raise ValueError("public_size= is for private training: compile with a private optimizer first.")
            with _ordinary_training(self):
                return original(self, *args, **kwargs)
        _check_owners(self)
        if not training.is_running:  # else training.fit raises
            _begin_private_training(self)
        bound = signature.bind(self, *args, **kwargs)
        bound.apply_defaults()
        arguments = dict(bound.arguments)
        arguments.pop(next(iter(signature.parameters)))
        return training.fit(functools.partial(original, self), arguments, public_size)

    return fit


def _wrap_train_on_batch(original):
    def train_on_batch(self, *args, **kwargs):
        if training_of(self) is not None:
            raise RuntimeError(f"train_on_batch can't know how its batch was sampled. {ONLY_FIT}")
        with _ordinary_training(self):
            return original(self, *args, **kwargs)

    return train_on_batch


def _wrap_load_weights(original):
    def load_weights(self, *args, **kwargs):
        training = training_of(self)
        if training is None:
            return original(self, *args, **kwargs)
        book, before = training.optimizer.book, _fingerprint(self)
        restored = book.times_restored
        try:
            return original(self, *args, **kwargs)
        except BaseException:
            if book.times_restored == restored and _fingerprint(self) != before:
                book.distrust(
                    "loading weights failed when some were loaded, and the ledger that belongs to them was not"
                )
            raise

    return load_weights


def _fingerprint(model: keras.Model) -> list[int]:
    return [zlib.crc32(keras.ops.convert_to_numpy(variable).tobytes()) for variable in model.weights]


@contextlib.contextmanager
def _ordinary_training(model: keras.Model) -> Iterator[None]:
    """An ordinary training run, of weights of their own model object or through another one."""
    if getattr(model, "optimizer", None) is not None:
        _check_owners(model)
    was_built, weights = model.built, model.trainable_variables
    _expose(model, weights)
    try:
        yield
    finally:  # weights that were made on the way, and those that a callback gave a book
        known = {id(variable) for variable in weights}
        weights = weights if was_built else model.trainable_variables
        _expose(model, [v for v in weights if id(v) not in known or v.__dict__.get(BOOKS)])


def _expose(model: keras.Model, weights: list[keras.Variable]) -> None:
    book = book_of(model)
    if book is not None:  # it was compiled in before there were weights to sign
        sign(weights, book)
    expose(weights)
