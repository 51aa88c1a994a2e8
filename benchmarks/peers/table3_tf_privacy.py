"""Table 3 of Bu et al. 2019 (IMDb) in TensorFlow Privacy: whether its accuracy, too, is below the paper's on the same records.

    benchmarks/peers/build.sh tf-privacy
    benchmarks/peers/.venvs/tf-privacy/bin/python -m benchmarks.peers.table3_tf_privacy --data-dir data

The network is the one that `train.py paper gdp-table3` trains; lots are of a fixed size, as the library has them, not Poisson samples.
"""

import argparse
import logging
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
import tensorflow_privacy as tfp
from tensorflow_privacy.privacy.fast_gradient_clipping import layer_registry

from models import bu_2019

LOT, EPOCHS, RATE, CLIP, NOISE = 512, 9, 0.02, 1.0, 0.56  # the paper's, as experiments/papers/bu_2019.py has them


def accuracy(records: dict[str, np.ndarray], seed: int) -> float:
    """Of test records, after training; `seed` is of the first weights."""
    keras.utils.set_random_seed(seed)
    network = bu_2019.imdb_text()
    model = tfp.DPModel(
        l2_norm_clip=CLIP,
        noise_multiplier=NOISE,
        use_xla=False,
        layer_registry=layer_registry.make_default_layer_registry(),
        inputs=network.inputs,
        outputs=network.outputs[0],
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=keras.optimizers.Adam(RATE), loss=loss, metrics=["accuracy"])
    lots = tf.data.Dataset.from_tensor_slices((records["x_train"], records["y_train"]))
    model.fit(lots.shuffle(len(records["y_train"])).batch(LOT, drop_remainder=True), epochs=EPOCHS, verbose=0)
    tests = tf.data.Dataset.from_tensor_slices((records["x_test"], records["y_test"])).batch(5000)
    return model.evaluate(tests, verbose=0, return_dict=True)["accuracy"]


def main(given: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, required=True, metavar="DIR", help="folder with imdb.npz")
    parser.add_argument("--seeds", type=int, default=5, help="how many runs")
    arguments = parser.parse_args(given)
    logging.getLogger("tensorflow").setLevel(logging.ERROR)
    with np.load(arguments.data_dir / "imdb.npz") as file:
        records = {name: file[name] for name in ("x_train", "y_train", "x_test", "y_test")}
    found = []
    for seed in range(arguments.seeds):
        found.append(100 * accuracy(records, seed))
        print(f"seed {seed}: {found[-1]:.1f} %", flush=True)
    print(f"accuracy: {np.mean(found):.1f} %, {min(found):.1f} to {max(found):.1f}, {len(found)} runs")


if __name__ == "__main__":
    main()
