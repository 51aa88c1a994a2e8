"""Do the rules of convolutions keep to their memory? Each kind of layer at odd sizes, in a process of its own.

    python -m benchmarks.heap_sweep --cases 40

A kernel that writes past a tensor's end breaks the heap, and the process ends by a signal, now or much later. Here every process runs
under glibc's checking allocator where there is one (libc_malloc_debug, which glibc 2.34 and later needs for MALLOC_CHECK_ to mean
anything), with freed memory overwritten: a byte too many ends the process when its tensor is freed. Every case draws
sizes, strides, dilation, groups, padding and lot at random, runs Keras's own gradient, then norms and clipped sum by the
layer's rule, in both forms that norms have. What is printed is each process's end, and the last case of one that did not come through.
"""

import argparse
import os
import random
import subprocess
import sys
from pathlib import Path

from benchmarks.protocol import ROOT

CHECKING = [
    Path(folder) / "libc_malloc_debug.so.0" for folder in ("/lib/x86_64-linux-gnu", "/usr/lib64", "/lib64", "/usr/lib")
]
LAYERS = {  # name: spatial dimensions
    "Conv1D": 1,
    "Conv2D": 2,
    "Conv3D": 3,
    "DepthwiseConv1D": 1,
    "DepthwiseConv2D": 2,
    "SeparableConv1D": 1,
    "SeparableConv2D": 2,
    "Conv1DTranspose": 1,
    "Conv2DTranspose": 2,
    "Conv3DTranspose": 3,
}


def drawn(name: str, seed: int) -> dict:
    """A case: what the layer is given, the input's shape, the lot."""
    draw, dimensions = random.Random(f"{name} {seed}"), LAYERS[name]
    strides = draw.choice([1, 1, 2, 3])
    dilation = draw.choice([1, 2, 3]) if strides == 1 else 1
    size = draw.choice([1, 2, 3, 3, 5])
    reach = (size - 1) * dilation + 1
    largest = {1: 40, 2: 9, 3: 3}[dimensions] if "Transpose" in name else {1: 70, 2: 33, 3: 9}[dimensions]
    shape = [draw.randint(reach, max(reach, largest)) for _ in range(dimensions)]
    channels = draw.choice([1, 2, 3, 8, 17, 32, 40])
    layer = {"kernel_size": size, "strides": strides, "dilation_rate": dilation, "use_bias": draw.random() < 0.5}
    layer["padding"] = draw.choice(["same", "valid"])
    if name == "Conv1D" and draw.random() < 0.3:
        layer["padding"] = "causal"
    if "Depthwise" in name:
        layer["depth_multiplier"] = draw.choice([1, 1, 3])
    else:
        layer["filters"] = draw.choice([1, 3, 8, 17, 40])
    if "Transpose" in name:
        layer["dilation_rate"] = 1  # TensorFlow has no dilated transposed convolution on a CPU
    if name in ("Conv1D", "Conv2D") and channels in (8, 32, 40) and strides == 1 == dilation and draw.random() < 0.3:
        layer["groups"], layer["filters"] = 4, draw.choice([4, 8, 40])
    return {"layer": layer, "shape": (*shape, channels), "lot": draw.choice([1, 2, 4, 5, 16, 17])}


def run(name: str, case: dict) -> None:
    """Forward, back, norms and sum."""
    import keras
    import numpy as np
    import tensorflow as tf

    from tfdp.gradients import lot_gradients
    from tfdp.gradients.forms import GRAM, MATERIALISED, forced
    from tfdp.gradients.plan import first_plan

    layers = keras.layers
    kind = getattr(layers, name)
    model = keras.Sequential(
        [layers.Input(case["shape"]), kind(**case["layer"]), layers.ReLU(), kind(**case["layer"] | {"padding": "same"})]
    )
    model.compile(optimizer="sgd", loss="mse")
    numbers = np.random.default_rng(0)
    x = numbers.normal(size=(case["lot"], *case["shape"])).astype("float32")
    y = numbers.normal(size=model.compute_output_shape(x.shape)).astype("float32")
    model.train_on_batch(x, y)
    model.evaluate(x, y, verbose=0)
    plan = first_plan(model)
    for form in (GRAM, MATERIALISED):

        @tf.function
        def step(x, y, form=form):
            with forced(form):
                gradients = lot_gradients(model, plan, x, y).gradients
                factors = tf.minimum(1.0, tf.math.rsqrt(gradients.squared_norms()))
                return gradients.weighted_sum(factors)

        assert all(np.isfinite(g).all() for g in step(x, y))


def environment() -> dict[str, str]:
    found = {"MALLOC_PERTURB_": "165", "MALLOC_CHECK_": "3", "TF_CPP_MIN_LOG_LEVEL": "3"}
    checking = [str(path) for path in CHECKING if path.exists()]
    return os.environ | found | ({"LD_PRELOAD": checking[0]} if checking else {})


def main(given: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.heap_sweep",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--layers", nargs="+", default=list(LAYERS), choices=list(LAYERS), help="default: all")
    parser.add_argument("--cases", type=int, default=40, help="of each layer (default 40)")
    parser.add_argument("--from", type=int, default=0, dest="first", help="the first case's number")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(given)
    seeds = range(options.first, options.first + options.cases)
    if options.here:
        for name in options.layers:
            for seed in seeds:
                case = drawn(name, seed)
                print(seed, case, flush=True)
                run(name, case)
        return 0
    broken = 0
    for name in options.layers:
        child = ["--here", "--layers", name, "--cases", str(options.cases), "--from", str(options.first)]
        command = [sys.executable, "-m", "benchmarks.heap_sweep", *child]
        done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False)
        broken += bool(done.returncode)
        how = (
            "came through"
            if not done.returncode
            else f"ended with {done.returncode} at {done.stdout.strip().splitlines()[-1:]}"
        )
        print(f"{name}: {options.cases} cases {how}", flush=True)
        if done.returncode > 0:
            print(done.stderr[-1500:], flush=True)
    return int(broken > 0)


if __name__ == "__main__":
    sys.exit(main())
