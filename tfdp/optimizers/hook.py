"""How a private optimizer reaches the model: the one place where Keras is extended from outside.

Keras shows an optimizer the weights and a batch gradient, never the model; per-example gradients need the model. There is
no extension point for that, so importing this module wraps ``compile``, ``fit``, ``train_on_batch`` and ``get_compile_config`` once, on the class of
``keras.Model.__mro__`` that defines each (wrapping them on ``keras.Model`` itself breaks ``load_model``, which compares
``compile`` with the base class's). Compiling with a PrivateOptimizer gives that one model a private ``train_step``;
compiling with an ordinary optimizer takes it away again. Models that are not compiled so run Keras's own code untouched.
"""

import functools
import inspect
import weakref

import keras

from tfdp.accounting import FitRecord, Ledger, NotPrivateEvent
from tfdp.optimizers.book import Past
from tfdp.optimizers.private_optimizer import ONLY_FIT, PrivateOptimizer
from tfdp.optimizers.training import PrivateTraining

_ATTACHED = "_tfdp_training"  # on a model: its PrivateTraining while a private optimizer is compiled in
_PAST = "_tfdp_past"  # on a model: what private optimizers released before the present one
_OWNER = "_tfdp_owner"  # on a weight: the model that trains it privately
_EXPOSED = "_tfdp_exposed"  # on a privately trained weight: another model trained it in the ordinary way afterwards
_TRAINS = "_tfdp_model"  # on a private optimizer: the model it was compiled into last


def install() -> None:
    """Wrap the methods, once."""
    wrappers = {
        "compile": _wrap_compile,
        "fit": _wrap_fit,
        "train_on_batch": _wrap_train_on_batch,
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
    """Everything this model object was trained with, over all its compilations."""
    return _past_of(model).ledger


def fits_of(model: keras.Model) -> tuple[FitRecord, ...]:
    """The circumstances of the fits that wrote the model's ledger."""
    return _past_of(model).fits


def _past_of(model: keras.Model) -> Past:
    training = training_of(model)
    return training.optimizer.book.read() if training is not None else model.__dict__.get(_PAST, Past())


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
        private = isinstance(optimizer, PrivateOptimizer)
        if private:
            _check_model(self, optimizer)
            bound.arguments["optimizer"] = optimizer
            bound.arguments["auto_scale_loss"] = False
        _check_owners(self)
        before = _past_of(self)
        result = original(*bound.args, **bound.kwargs)
        _detach(self)
        if private:
            self.__dict__[_ATTACHED] = training = PrivateTraining(self, optimizer)
            self.__dict__["train_step"] = training.train_step
            if before.ledger.steps:
                optimizer.book.adopt(before, own_included=_trained_by(optimizer) is self)
            optimizer.__dict__[_TRAINS] = weakref.ref(self)
        elif before.ledger.steps:
            self.__dict__[_PAST] = before
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
        model.__dict__.pop("train_step", None)


def _check_model(model: keras.Model, optimizer: PrivateOptimizer) -> None:
    for name in ("train_step", "make_train_function"):
        definer = next(c for c in keras.Model.__mro__ if name in c.__dict__)
        on_instance = name in model.__dict__ and training_of(model) is None
        if getattr(type(model), name) is not getattr(definer, name) or on_instance:
            raise ValueError(
                f"{type(model).__name__} has a {name} of its own, which private training would have to replace: its "
                "updates would not be clipped and noised. Put what it does into call() and compute_loss()."
            )
    other = _trained_by(optimizer)
    if other is not None and other is not model and getattr(training_of(other), "optimizer", None) is optimizer:
        raise ValueError(
            f"This optimizer already trains the model {other.name!r}, and its ledger speaks of that one. Make an optimizer "
            "for each model."
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
                f"False), or compile only one of the two models."
            )


def mark_owner(model: keras.Model) -> None:
    """Called when private training of these weights begins."""
    for variable in model.trainable_variables:
        variable.__dict__[_OWNER] = weakref.ref(model)
    exposed = [variable for variable in model.trainable_variables if variable.__dict__.pop(_EXPOSED, False)]
    if exposed:
        optimizer = training_of(model).optimizer
        optimizer.book.adopt(_with_ordinary_training(optimizer.book.read()), own_included=True)


def _wrap_fit(original):
    signature = inspect.signature(original)

    def fit(self, *args, public_size=None, **kwargs):
        training = training_of(self)
        if training is None:
            if public_size is not None:
                raise ValueError("public_size= is for private training: compile with a private optimizer first.")
            _ordinary_training(self)
            return original(self, *args, **kwargs)
        _check_owners(self)
        mark_owner(self)
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
        _ordinary_training(self)
        return original(self, *args, **kwargs)

    return train_on_batch


def _ordinary_training(model: keras.Model) -> None:
    """An ordinary training run after private ones, on the same model object or on its weights through another model."""
    if getattr(model, "optimizer", None) is not None:
        _check_owners(model)
    before = model.__dict__.get(_PAST)
    if before is not None and before.ledger.steps:
        model.__dict__[_PAST] = _with_ordinary_training(before)
    else:
        for variable in model.trainable_variables:
            if _OWNER in variable.__dict__:
                variable.__dict__[_EXPOSED] = True


def _with_ordinary_training(past: Past) -> Past:
    return past.with_unknown(NotPrivateEvent("the model was trained with an ordinary optimizer in between"), 1)
