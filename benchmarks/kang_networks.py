"""The networks of Kang et al. 2020 (both papers): one hidden layer as wide as the records, by every method that needs no convex loss.

    python -m benchmarks.kang_networks study --data-dir DIR --cases adult --epsilons 0.25 7 --json results/kang_networks.jsonl
    python -m benchmarks.kang_networks table --json results/kang_networks.jsonl

Study: accuracy on test records, and how much larger the mean loss on the training records is than that of the same network trained without
privacy. It is no distance from an optimum, which nobody knows here, and may be negative. Features are clipped to the case's norm and divided
by it. How methods are tuned, and what the data are: `kang_2020.py`.

- gradient, DP-LSSGD: ten epochs of NoisySGD, gradients clipped to 1.
- input, with or without labels: the proven noise on the records, then five epochs of Adam. As published: eq. 12, with a Lipschitz constant of
  1, which no network has, and 25 gradient steps on all records.
- DBDP: from the network without privacy, 20 steps on 2,000 of its training records, whose Hessian gets a damping of 1 (0.1 left one not
  positive definite).

Column "proven" and neighbours: as in `convex.py`. All that is proven of these networks is proven for any model.
"""

import functools
import sys
from collections.abc import Callable

import keras
import numpy as np

import tfdp
from benchmarks import kang_2020
from experiments.convex import Case
from experiments.papers.reproduce import proven
from experiments.statements import claimed, stated
from models.kang_2020 import one_hidden_layer
from tfdp.erm.records import Ball

STEPS = 25  # of the paper's input perturbation
INFLUENCE_RECORDS, INFLUENCE_STEPS, DAMPING = 2000, 20, 1.0

Trained = tuple[keras.Model, dict]  # with what is stated of it


def features(case: Case, x: np.ndarray) -> np.ndarray:
    """At most 1 long."""
    return Ball(case.clip, None).inside(x).astype(np.float32)


def compiled(case: Case, optimizer: keras.Optimizer) -> keras.Model:
    model = one_hidden_layer(case.x.shape[1], len(case.classes))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, metrics=["accuracy"])
    return model


def noisy_sgd(case: Case, epsilon: float, learning_rate: float, denoise: str | None = None) -> Trained:
    budget = {"target_epsilon": epsilon, "delta": case.delta}
    model = compiled(case, tfdp.NoisySGD(learning_rate, l2_norm_clip=1.0, denoise=denoise, **budget))
    model.fit(features(case, case.x), case.y, batch_size=case.lot, epochs=10, verbose=0)
    return model, stated(tfdp.privacy_statement(model))


def noisy_records(case: Case, epsilon: float, learning_rate: float, labels_too: bool = False) -> Trained:
    more = {"randomized_response": case.label_noise(epsilon), "classes": len(case.classes)} if labels_too else {}
    perturbation = tfdp.data.InputPerturbation.proven(epsilon, case.delta, **more)
    model = compiled(case, keras.optimizers.Adam(learning_rate))
    model.fit(*perturbation.on_arrays(features(case, case.x), case.y), batch_size=256, epochs=5, verbose=0)
    return model, stated(perturbation.statement())


def noisy_records_as_published(case: Case, epsilon: float, learning_rate: float) -> Trained:
    size = len(case.y)
    perturbation = tfdp.data.InputPerturbation.as_published(epsilon, case.delta, STEPS, size, lipschitz=1.0, pl=True)
    model = compiled(case, keras.optimizers.SGD(learning_rate))
    model.fit(*perturbation.on_arrays(features(case, case.x), case.y), batch_size=size, epochs=STEPS, verbose=0)
    return model, stated(perturbation.statement())


@functools.cache
def ordinary(case: Case) -> keras.Model:
    """The network without privacy. Small sets get small batches: there are at least 80 steps."""
    model = compiled(case, keras.optimizers.Adam(0.01))
    model.fit(features(case, case.x), case.y, batch_size=min(256, case.lot), epochs=10, verbose=0)
    return model


def influence(case: Case, epsilon: float, learning_rate: float) -> Trained:
    model = compiled(case, keras.optimizers.SGD())
    model.set_weights(ordinary(case).get_weights())
    perturbation = tfdp.data.InfluencePerturbation(model, epsilon, case.delta, lipschitz=1.0, damping=DAMPING)
    some = np.random.default_rng().permutation(len(case.y))[:INFLUENCE_RECORDS]
    result = perturbation.train(features(case, case.x[some]), case.y[some], INFLUENCE_STEPS, learning_rate)
    return model, claimed(result.claims, case.delta)


METHODS: dict[str, tuple[Callable[..., Trained], tuple[float, ...]]] = {
    "gradient": (noisy_sgd, (0.3, 2.0)),
    "DP-LSSGD": (functools.partial(noisy_sgd, denoise="laplacian"), (0.3, 2.0)),
    "input": (noisy_records, (0.003,)),
    "input, labels too": (functools.partial(noisy_records, labels_too=True), (0.003,)),
    "input, as published": (noisy_records_as_published, (5.0,)),
    "DBDP": (influence, (0.1,)),
}


def measured(case: Case, model: keras.Model) -> dict:
    loss = model.evaluate(features(case, case.x), case.y, batch_size=4096, verbose=0)[0]
    return {"accuracy": accuracy(case, model), "loss": loss}


def accuracy(case: Case, model: keras.Model) -> float:
    return 100 * model.evaluate(features(case, case.x_test), case.y_test, batch_size=4096, verbose=0)[1]


@functools.cache
def without_privacy(case: Case) -> dict:
    return measured(case, ordinary(case))


def run(case: Case, method: str, epsilon: float, value: float, with_gap: bool) -> dict:
    model, statement = METHODS[method][0](case, epsilon, value)
    proves = proven([{"statement": statement}])
    if not with_gap:
        return {"accuracy": accuracy(case, model), "proven": proves}
    found = measured(case, model)
    return found | {"proven": proves, "gap": found["loss"] - without_privacy(case)["loss"]}


FAMILY = kang_2020.Family({method: grid for method, (_, grid) in METHODS.items()}, run, without_privacy)


def main() -> int:
    return kang_2020.main(FAMILY, "benchmarks.kang_networks", __doc__)


if __name__ == "__main__":
    sys.exit(main())
