"""The workloads in JAX Privacy: `vmap` is its `clipped_grad`, jitted together with noise and optimizer.

`vmap 16` and `vmap 1` are the same with `microbatch_size`: so many examples at once, the parts of the lot in turn.

The networks are written in plain JAX: `jax_privacy.clipped_grad` takes any function, and the step is then as lean as JAX
allows. Weights are initialised by Glorot's rule.
"""

import functools
import math

import jax
import jax.numpy as jnp
import jax_privacy
import numpy as np
import optax
from jax_privacy import noise_addition

from benchmarks.peers import measure
from benchmarks.peers.measure import Setting
from benchmarks.workloads import Workload


class Init:
    """Makes weights, in order."""

    def __init__(self):
        self._generator = np.random.default_rng(0)

    def glorot(self, *shape: int) -> jax.Array:
        field = math.prod(shape[:-2])
        limit = math.sqrt(6 / (field * (shape[-2] + shape[-1])))
        return jnp.asarray(self._generator.uniform(-limit, limit, shape), jnp.float32)

    def dense(self, inputs: int, units: int) -> dict:
        return {"kernel": self.glorot(inputs, units), "bias": jnp.zeros(units)}

    def convolution(self, *shape: int, bias: bool = True) -> dict:
        kernel = {"kernel": self.glorot(*shape)}
        return kernel | {"bias": jnp.zeros(shape[-1])} if bias else kernel

    def embedding(self, words: int, width: int) -> jax.Array:
        return jnp.asarray(self._generator.uniform(-0.05, 0.05, (words, width)), jnp.float32)

    def norm(self, width: int) -> dict:
        return {"scale": jnp.ones(width), "bias": jnp.zeros(width)}


def dense(w, x):
    return x @ w["kernel"] + w["bias"]


def convolution(w, x, stride=1, padding="SAME"):
    layout = ("NHWC", "HWIO", "NHWC")
    y = jax.lax.conv_general_dilated(x, w["kernel"], (stride, stride), padding, dimension_numbers=layout)
    return y + w["bias"] if "bias" in w else y


def pool(x, stride):
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, stride, stride, 1), "VALID")


def normalised(x, axes):
    mean, variance = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(variance + 1e-5)


def layer_norm(w, x):
    return normalised(x, -1) * w["scale"] + w["bias"]


def group_norm(w, x, groups=16):
    parts = x.reshape(*x.shape[:-1], groups, x.shape[-1] // groups)
    return normalised(parts, (1, 2, 4)).reshape(x.shape) * w["scale"] + w["bias"]


def flat(x):
    return x.reshape(len(x), -1)


def mlp(init: Init):
    def apply(w, x):
        return dense(w["head"], jax.nn.relu(dense(w["hidden"], x)))

    return {"hidden": init.dense(123, 16), "head": init.dense(16, 2)}, apply


def cnn(init: Init):
    def apply(w, x):
        x = pool(jax.nn.relu(convolution(w["first"], x, 2)), 1)
        x = pool(jax.nn.relu(convolution(w["second"], x, 2, "VALID")), 1)
        return dense(w["head"], jax.nn.relu(dense(w["hidden"], flat(x))))

    weights = {"first": init.convolution(8, 8, 1, 16), "second": init.convolution(4, 4, 16, 32)}
    return weights | {"hidden": init.dense(512, 32), "head": init.dense(32, 10)}, apply


def lenet(init: Init):
    def apply(w, x):
        x = pool(jnp.tanh(convolution(w["first"], x)), 2)
        x = flat(pool(jnp.tanh(convolution(w["second"], x, 1, "VALID")), 2))
        return dense(w["head"], jnp.tanh(dense(w["fourth"], jnp.tanh(dense(w["third"], x)))))

    weights = {"first": init.convolution(5, 5, 1, 6), "second": init.convolution(5, 5, 6, 16)}
    return weights | {"third": init.dense(400, 120), "fourth": init.dense(120, 84), "head": init.dense(84, 10)}, apply


def resnet18(init: Init):
    sizes = [
        (64, 64, 1),
        (64, 64, 1),
        (64, 128, 2),
        (128, 128, 1),
        (128, 256, 2),
        (256, 256, 1),
        (256, 512, 2),
        (512, 512, 1),
    ]

    def block(entering, width, stride):
        w = {"first": init.convolution(3, 3, entering, width, bias=False), "first_norm": init.norm(width)}
        w |= {"second": init.convolution(3, 3, width, width, bias=False), "second_norm": init.norm(width)}
        if stride > 1 or entering != width:
            w |= {"straight": init.convolution(1, 1, entering, width, bias=False), "straight_norm": init.norm(width)}
        return w

    def apply_block(w, x, stride):
        y = jax.nn.relu(group_norm(w["first_norm"], convolution(w["first"], x, stride)))
        y = group_norm(w["second_norm"], convolution(w["second"], y))
        if "straight" in w:
            x = group_norm(w["straight_norm"], convolution(w["straight"], x, stride))
        return jax.nn.relu(x + y)

    def apply(w, x):
        x = jax.nn.relu(group_norm(w["stem_norm"], convolution(w["stem"], x)))
        for weights, (_, _, stride) in zip(w["blocks"], sizes, strict=True):
            x = apply_block(weights, x, stride)
        return dense(w["head"], x.mean((1, 2)))

    weights = {"stem": init.convolution(3, 3, 3, 64, bias=False), "stem_norm": init.norm(64)}
    return weights | {"blocks": [block(*size) for size in sizes], "head": init.dense(512, 10)}, apply


def text(init: Init):
    def apply(w, tokens):
        return dense(w["head"], jax.nn.relu(dense(w["hidden"], w["words"][tokens].mean(1))))

    return {"words": init.embedding(10_000, 16), "hidden": init.dense(16, 16), "head": init.dense(16, 2)}, apply


def transformer(init: Init, width: int = 64, heads: int = 4):
    def attention(w, x):
        rows, length, _ = x.shape
        query, key, value = (dense(w[name], x).reshape(rows, length, heads, -1) for name in ("query", "key", "value"))
        scores = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", query, key) / math.sqrt(width // heads))
        return dense(w["out"], jnp.einsum("bhqk,bkhd->bqhd", scores, value).reshape(x.shape))

    def apply(w, tokens):
        x = w["words"][tokens] + w["places"]
        for block in w["blocks"]:
            x = layer_norm(block["first_norm"], x + attention(block, x))
            x = layer_norm(block["second_norm"], x + dense(block["narrow"], jax.nn.relu(dense(block["wide"], x))))
        return dense(w["head"], x.mean(1))

    def block():
        w = {name: init.dense(width, width) for name in ("query", "key", "value", "out")}
        w |= {"wide": init.dense(width, 4 * width), "narrow": init.dense(4 * width, width)}
        return w | {"first_norm": init.norm(width), "second_norm": init.norm(width)}

    weights = {"words": init.embedding(10_000, width), "places": init.embedding(128, width)}
    return weights | {"blocks": [block(), block()], "head": init.dense(width, 2)}, apply


def lstm(init: Init, width: int = 32, units: int = 64):
    def apply(w, tokens):
        entering = jnp.swapaxes(w["words"][tokens] @ w["kernel"] + w["bias"], 0, 1)

        def step(state, x):
            hidden, cell = state
            i, f, g, o = jnp.split(x + hidden @ w["recurrent"], 4, axis=-1)
            cell = jax.nn.sigmoid(f) * cell + jax.nn.sigmoid(i) * jnp.tanh(g)
            return (jax.nn.sigmoid(o) * jnp.tanh(cell), cell), None

        zeros = jnp.zeros((len(tokens), units))
        (hidden, _), _ = jax.lax.scan(step, (zeros, zeros), entering)
        return dense(w["head"], hidden)

    weights = {"words": init.embedding(10_000, width), "kernel": init.glorot(width, 4 * units)}
    weights |= {"recurrent": init.glorot(units, 4 * units), "bias": jnp.zeros(4 * units)}
    return weights | {"head": init.dense(units, 2)}, apply


def ncf(init: Init):
    def apply(w, pair):
        user, movie = pair["user"], pair["movie"]
        factors = w["user_factors"][user] * w["movie_factors"][movie]
        return dense(w["head"], jnp.concatenate([factors, w["users"][user], w["movies"][movie]], 1))

    weights = {"user_factors": init.embedding(6040, 5), "movie_factors": init.embedding(3706, 5)}
    weights |= {"users": init.embedding(6040, 10), "movies": init.embedding(3706, 10)}
    return weights | {"head": init.dense(25, 5)}, apply


NETWORKS = {f.__name__: f for f in (mlp, cnn, lenet, resnet18, text, transformer, lstm, ncf)}


def mean_loss(apply, weights, x, y):
    return optax.softmax_cross_entropy_with_integer_labels(apply(weights, x), y).mean()


class JaxSide:
    def __init__(self, workload: Workload, method: str, setting: Setting):
        self._weights, apply = NETWORKS[workload.kind](Init())
        self.lot = jax.device_put(workload.records(setting.lot))
        loss = functools.partial(mean_loss, apply)
        optimizer = {"sgd": optax.sgd, "adam": optax.adam}[setting.optimizer](setting.rate)
        if method == "plain":
            gradient = jax.grad(loss)
            transform = optimizer
        else:
            at_once = int(method.partition(" ")[2] or setting.lot)
            gradient = jax_privacy.clipped_grad(
                loss,
                l2_clip_norm=setting.clip,
                batch_argnums=(1, 2),
                normalize_by=setting.lot,
                microbatch_size=at_once if at_once < setting.lot else None,
            )
            noise = noise_addition.gaussian_privatizer(
                stddev=setting.noise * setting.clip / setting.lot, prng_key=jax.random.key(0)
            )
            transform = optax.chain(noise, optimizer)
        self._state = transform.init(self._weights)

        @functools.partial(jax.jit, donate_argnums=(0, 1))
        def step(weights, state, x, y):
            updates, state = transform.update(gradient(weights, x, y), state)
            return optax.apply_updates(weights, updates), state

        self._step = step

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self._weights, self._state = self._step(self._weights, self._state, *self.lot)
        jax.block_until_ready(self._weights)

    def weights(self) -> np.ndarray:
        return _flat(self._weights)


def _flat(tree) -> np.ndarray:
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])


class JaxPrivacy:
    library, module = "jax-privacy", "benchmarks.peers.run_jax_privacy"
    packages = ("jax-privacy", "jax", "jaxlib", "optax", "numpy")
    methods = ("plain", "vmap", "vmap 16", "vmap 1")

    def side(self, workload: Workload, method: str, setting: Setting) -> JaxSide:
        return JaxSide(workload, method, setting)

    def example_gradients(self, workload: Workload, method: str, rows: int) -> np.ndarray:
        weights, apply = NETWORKS[workload.kind](Init())
        gradient = jax.jit(jax.grad(functools.partial(mean_loss, apply)))
        x, y = workload.records(rows)
        alone = [jax.tree.map(lambda part, i=i: part[i : i + 1], (x, y)) for i in range(rows)]
        return np.stack([_flat(gradient(weights, *record)) for record in alone])


if __name__ == "__main__":
    measure.exit_with(JaxPrivacy(), __doc__)
