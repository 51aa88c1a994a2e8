"""Private training of one model: what ``fit`` does differently, and the private step."""

import contextlib
import functools
import math
import threading
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from tfdp.accounting import Event, NotPrivateEvent
from tfdp.accounting.exposure import trained_before
from tfdp.data import DeclaredDataset, PoissonBatches
from tfdp.gradients import prove
from tfdp.gradients.draws import drawing_from
from tfdp.gradients.fixed_batch import told_if_fixed
from tfdp.gradients.layer_tree import all_layers, instance_attribute, map_tensors
from tfdp.gradients.losses import loss_of_records
from tfdp.gradients.precision import full_precision, refuse_reduced_precision
from tfdp.gradients.remat import without_rematerialisation
from tfdp.gradients.state import no_state_assigned, only_metrics_written, refuse_stateful
from tfdp.optimizers.after_fit import told_at_the_end
from tfdp.optimizers.fit_arguments import check_types, lots_of_fit, told_if_texts
from tfdp.optimizers.full_pass import FullPass, check_full_gradient
from tfdp.optimizers.past import OpenLine
from tfdp.optimizers.private_optimizer import ONLY_FIT, PrivateOptimizer
from tfdp.optimizers.progress import tell_of_training_before, told_if_long
from tfdp.optimizers.proven import Proven, given_to_proof, same
from tfdp.optimizers.replicas import Replicas, replicas_of
from tfdp.optimizers.replicated_step import ReplicatedStep
from tfdp.optimizers.run import Opening, Run
from tfdp.optimizers.step import PrivateStep
from tfdp.optimizers.watchers import are_training_records, training_metrics_of, watchers_of


class PrivateTraining:
    """Binds a model and its private optimizer. Made by ``compile``, replaced by the next ``compile``.

    Args:
        model: the model.
        optimizer: the one that it was compiled with.
        before: what ``compile`` had made the last time. What it proved is not proven again where nothing changed.
    """

    def __init__(self, model: keras.Model, optimizer: PrivateOptimizer, before: "PrivateTraining | None" = None):
        self._model = weakref.ref(model)
        self.optimizer = optimizer
        self._proven = None if before is None else before._proven
        self._step: PrivateStep | None = None
        self._about: list = []
        self._full_pass: FullPass | None = None
        self.run: Run | None = None  # while fit runs
        self._lots: PoissonBatches | DeclaredDataset | None = None  # while fit runs
        self._replicas: Replicas | None = None
        self._alone = threading.Lock()  # held while fit runs, from its first line on
        self._records: int | None = None
        self._warned_of: set[tuple[float, int]] = set()

    @property
    def model(self) -> keras.Model:
        return self._model()

    def train_step(self, data: Any) -> dict:
        """Keras calls this in place of the model's own train_step."""
        by_hand = tf.executing_eagerly() and not self.model.run_eagerly  # fit calls it while tracing: a lot was chosen
        if self._step is None or by_hand:
            raise RuntimeError(ONLY_FIT)
        logs = self._step(data)
        return logs if self._replicas is None else self._replicas.logs(logs)

    def test_step(self, data: Any) -> dict:
        """The model's own, which must not write what it saw into the model: validation may be of training records."""
        with only_metrics_written(self.model, "validation"):
            return type(self.model).test_step(self.model, data)

    def predict_step(self, data: Any) -> Any:
        with only_metrics_written(self.model, "inference"):
            return type(self.model).predict_step(self.model, data)

    @property
    def is_running(self) -> bool:
        """Whether fit runs, in any thread."""
        return self._alone.locked()

    def fit(self, original: Callable, arguments: dict, public_size: int | None) -> Any:
        """Draw the lots, prove the engine, plan the run, and let Keras run the epochs.

        Raises:
            RuntimeError: fit is running on this model: in another thread, or a callback called this one.
        """
        if not self._alone.acquire(blocking=False):
            raise RuntimeError(
                f"fit is already running on this model ({self.model.name!r}), and its steps belong to that run's line of the "
                "ledger. Call fit again when it has returned; a callback must not call it."
            )
        try:
            refuse_reduced_precision()
            with full_precision():
                return self._fit(original, arguments, public_size)
        finally:
            self._alone.release()

    @without_rematerialisation()  # in validation as well
    def _fit(self, original: Callable, arguments: dict, public_size: int | None) -> Any:
        model, optimizer = self.model, self.optimizer
        self._check(model)
        validated = _has_validation_records(arguments)
        lots, arguments = lots_of_fit(arguments, public_size)
        if self._replicas is not None:
            self._replicas.check_executions(model, arguments["steps_per_epoch"])
            lots = self._replicas.share_of(lots)
        self._check_lots(lots)
        check_types(model, lots.record_spec)
        with contextlib.nullcontext() if self._replicas is None else self._replicas.strategy.scope():
            self._build(model, lots)
        if self._replicas is not None and not optimizer.generator.seeded:
            optimizer.generator.reseed()  # made in the scope of several workers it may be a copy of the chief's
        optimizer.generator.reseed_after_fork()
        sample, rows = lots.head(8), math.ceil(min(lots.batch_size, optimizer.max_physical_batch or lots.batch_size))
        given = given_to_proof(model, lots.record_spec, rows)
        about = [lots.batch_size, *_losses_of(model), *given]
        if self._step is None or model.run_eagerly or not same(self._about, about):
            # Whatever is traced anew is proved anew: an attribute of the model may have changed what its call does.
            kind = PrivateStep if self._replicas is None else ReplicatedStep
            prover = functools.partial(prove, model, lots.record_spec, sample, rows)
            known = self._proven if self._proven is not None and self._proven.covers(given, sample) else None
            self._step, self._about, self._proven = None, about, None
            with told_if_long(model, arguments["verbose"]):
                self._step = kind(model, optimizer, lots.record_spec, lots.batch_size, prover, known)
            self._proven = Proven(given, sample, self._step.plan, self._step.core)
            self._full_pass = None
            model.train_function = None
        arguments["callbacks"] = callbacks = _with_ours_first(arguments["callbacks"], self._opening())
        try:
            self._lots = lots
            self.run = self._planned_run(lots, arguments, validated)
            if optimizer.book.steps == 0:
                tell_of_training_before(model, arguments["verbose"])
            if optimizer.budget is not None:
                self.warn_of_large_delta(optimizer.budget.delta)
            arguments |= _stream(lots, arguments["steps_per_epoch"], self._step, self._replicas)
            fitting = contextlib.nullcontext() if self._replicas is None else self._replicas.fitting(model)
            # XLA compiles the step's core, see PrivateStep; around it shapes change with every lot.
            ending = told_at_the_end(optimizer, lots.batch_size)
            with instance_attribute(model, "_jit_compile", False), fitting, ending:
                return original(**arguments)
        finally:
            self._step.close()
            optimizer.book.close()
            self.run = self._lots = None
            if self._full_pass is not None:
                self._full_pass.close()
            if isinstance(callbacks, keras.callbacks.CallbackList):  # the caller's own, for the next fit as well
                callbacks.callbacks[:] = [c for c in callbacks.callbacks if not isinstance(c, Opening)]

    def warn_of_large_delta(self, delta: float) -> None:
        """Once for each delta that says nothing, given the number of records of the fit that runs."""
        records = self._records
        if not records or delta < 1 / records or (delta, records) in self._warned_of:
            return
        self._warned_of.add((delta, records))
        warnings.warn(
            f"delta={delta:g} is at least 1 / {records} records: a mechanism that publishes one whole record, chosen at random, "
            "would keep to it with an epsilon of 0. Give a delta well below 1 / (number of records).",
            stacklevel=2,
        )

    def _planned_run(self, lots: PoissonBatches | DeclaredDataset, arguments: dict, validated: bool) -> Run:
        declared = isinstance(lots, DeclaredDataset)
        line = OpenLine(
            event=NotPrivateEvent("not settled yet"),
            sampling=lots.sampling,
            planned=0,
            weights=sum(math.prod(v.shape) for v in self.model.trainable_variables),
            trained_before=trained_before(self.model.weights),
            steps_per_pass=lots.steps_per_pass if declared else None,
            unchecked=lots.unchecked,
            watchers=watchers_of(_listed(arguments["callbacks"]), training_metrics_of(self.model), validated),
        )

        full_pass = self._full_pass_over(lots)

        def freeze() -> Event:
            self.optimizer.check_mechanism()  # callbacks and restored checkpoints come between fit's own check and this
            if self._step.freeze():
                self.model.train_function = None
                self.model.make_train_function()
            if lots.seeded:
                return NotPrivateEvent("a sampling_seed was given: whoever knows the seed knows the lots")
            return self.optimizer.event_of(self._step.mechanism, self.optimizer.state_of_mechanism)

        return Run(self.optimizer, line, freeze, arguments["steps_per_epoch"], arguments["epochs"], full_pass)

    def _full_pass_over(self, lots: PoissonBatches | DeclaredDataset) -> FullPass | None:
        if self.optimizer.mechanism.full_gradient is None:
            return None
        if self._full_pass is None or self._full_pass.step is not self._step:
            self._full_pass = FullPass(self._step)
        self._full_pass.over(lots)
        return self._full_pass

    def _opening(self) -> Opening:
        opening = Opening(self._begin_epoch, self._step.check_mechanism)
        opening.set_model(self.model)  # Keras does not, where the caller made the CallbackList
        return opening

    def _begin_epoch(self, epoch: int) -> Run:
        was_settled = self.run.is_settled
        self.run.settle(epoch)
        if self._replicas is not None and self._replicas.workers > 1 and not was_settled:
            self._replicas.check_agreement(**self._stated(epoch))
        self._step.open()
        return self.run

    def _stated(self, epoch: int) -> dict[str, bytes]:
        """What must be the same on all workers."""
        optimizer, run = self.optimizer, self.run
        weights = [v.numpy().tobytes() for v in (*self.model.weights, *optimizer.variables)]
        return {
            "records": self._lots.fingerprint(),
            "weights": b"".join(weights),
            "ledger": optimizer.ledger.to_json().encode(),
            "noise": repr((run.event, optimizer.mechanism.l2_norm_clip, self._lots.sampling)).encode(),
            "plan": repr((epoch, run.planned_end - run.began_at, run.limit - run.began_at)).encode(),
        }

    def _check(self, model: keras.Model) -> None:
        if model.optimizer is not self.optimizer:
            raise RuntimeError(
                "The model's optimizer was replaced after compile(), so the private step no longer belongs to it. Compile "
                "again with the optimizer you want."
            )
        self._replicas = replicas_of(model, self.optimizer)
        budget = self.optimizer.budget
        target = (None, "pld") if budget is None else (budget.target_epsilon, budget.accountant)
        self.optimizer.mechanism.check_target(target[0], self.optimizer.delta, target[1])
        refuse_stateful(model)
        overwritten = [v.path for v in model.trainable_variables if getattr(v, "overwrite_with_gradient", False)]
        if overwritten:
            raise ValueError(
                f"The weights {overwritten} are overwritten with their gradient (float8 training), which no clipping or "
                "noise can cover. Use a dtype policy without float8."
            )
        self.optimizer.check_mechanism()
        if self.optimizer.built:
            known = {id(v) for v in self.optimizer._trainable_variables}
            if not known:
                raise ValueError(
                    "The optimizer knows none of the model's weights: that is how Keras loads the optimizer of a legacy .h5 file. Load the file "
                    "with keras.models.load_model(path, compile=False) and compile with a new optimizer: the ledger comes with the weights. "
                    "Files made by model.save('model.keras') keep the optimizer as well."
                )
            if {id(v) for v in model.trainable_variables} != known:
                raise ValueError(
                    "The set of trainable weights changed since the optimizer was built (a layer was frozen or unfrozen). "
                    "Compile again with a new optimizer; the model keeps its ledger."
                )

    def _check_lots(self, lots: PoissonBatches | DeclaredDataset) -> None:
        if self.optimizer.mechanism.full_gradient is not None:
            check_full_gradient(self.model, lots)
        budget = self.optimizer.budget
        if lots.seeded and budget is not None:
            raise ValueError(
                f"The lots have a sampling_seed, and whoever knows it knows which records are in which lot: no target can be "
                f"kept (target_epsilon={budget.target_epsilon:g}), however much noise there is. Leave out sampling_seed, or for "
                "a test give the optimizer noise_multiplier= in place of target_epsilon=."
            )
        self._records = lots.sampling.size

    def _build(self, model: keras.Model, lots: PoissonBatches | DeclaredDataset) -> None:
        """Weights, losses and metrics exist before the proof and the first trace."""
        record = map_tensors(tf.convert_to_tensor, lots.head(2))
        x, y, sample_weight = (*record, None, None)[:3]
        compiled = [part for part in (model._compile_loss, model._compile_metrics) if part is not None]
        if not all(layer.built for layer in all_layers(model)) or not all(part.built for part in compiled):
            # Keras's recurrent layers draw masks here, too: their seeds stay where they are.
            with (
                no_state_assigned(model),
                told_if_fixed(model),
                told_if_texts(model, lots.record_spec),
                drawing_from(tf.zeros([2], tf.int64)),
            ):
                y_pred = model(x, training=False)
                loss_of_records(model, x, y, y_pred, sample_weight)
                model.compute_metrics(x, y, y_pred, sample_weight)
            model._clear_losses()
            model.reset_metrics()
        if not model.trainable_variables:
            raise ValueError(f"The model {model.name!r} has no trainable weights.")
        self.optimizer.build(model.trainable_variables)


def _losses_of(model: keras.Model) -> list:
    compiled = model._compile_loss
    return keras.tree.flatten((compiled._user_loss, compiled._user_loss_weights)) if compiled else []


def _has_validation_records(arguments: dict) -> bool:
    """Of what fit was given: records that are not trained on."""
    given = arguments["validation_data"]
    if given is None:  # Keras cuts them off from the training records
        return bool(arguments["validation_split"])
    return not are_training_records(arguments["x"], given)


def _with_ours_first(callbacks: Any, opening: Opening) -> Any:
    """What epsilon is, our callbacks write into the logs: all others, which come after them, see it."""
    if isinstance(callbacks, keras.callbacks.CallbackList):
        listed = callbacks.callbacks
    else:
        listed = callbacks = [c for c in keras.tree.flatten(callbacks) if c is not None]
    listed.sort(key=lambda callback: type(callback).__module__.split(".")[0] != "tfdp")
    listed.insert(0, opening)
    return callbacks


def _listed(callbacks: Any) -> list[keras.callbacks.Callback]:
    return callbacks.callbacks if isinstance(callbacks, keras.callbacks.CallbackList) else callbacks


def _stream(
    lots: PoissonBatches | DeclaredDataset, steps_per_epoch: int, step: PrivateStep, replicas: Replicas | None
) -> dict:
    """The lots as Keras's fit wants them."""
    padded = step.jit_compile or step.masks_all_it_shows
    if isinstance(lots, DeclaredDataset):
        rows = lots.dataset()
    else:
        rows = lots.dataset(bucketed=padded, fine=not step.jit_compile)
    if replicas is not None:
        return {"x": replicas.parts(rows, equal=padded), "steps_per_epoch": steps_per_epoch}
    whole = steps_per_epoch % step.model.steps_per_execution == 0
    if isinstance(lots, DeclaredDataset) or whole:
        # One iteration for all epochs. Each new one would begin a new pass, draw anew what was drawn ahead, and take time to set up.
        return {"x": rows, "steps_per_epoch": steps_per_epoch}
    # Of known length, so that steps_per_execution stops at the end of an epoch.
    return {"x": rows.take(steps_per_epoch), "steps_per_epoch": None}
