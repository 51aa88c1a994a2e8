"""One private training run on data that comes with scikit-learn: 1,797 handwritten digits, 8 x 8 pixels.

python train.py            prints Keras's progress, the test accuracy and the privacy statement of the run
python train.py --help     what can be changed

The run's folder holds model.keras, history.csv and statement.json.
"""

import argparse
import os
import pathlib

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument("--epochs", type=int, default=30, help="passes of ceil(n / batch size) random lots")
    parser.add_argument("--batch-size", type=int, default=512, help="expected number of records in a lot")
    parser.add_argument("--learning-rate", type=float, default=0.02)
    parser.add_argument("--clip", type=float, default=0.5, help="largest l2 norm of one record's gradient")
    parser.add_argument(
        "--target-epsilon", type=float, default=3.0, help="the noise is found so that this is not exceeded"
    )
    parser.add_argument("--delta", type=float, default=1e-5, help="at which epsilon is meant")
    parser.add_argument(
        "--folder", type=pathlib.Path, default="saved_models/digits", help="where the run is written to"
    )
    return parser.parse_args()


def load_digits():
    import numpy as np
    from sklearn.datasets import load_digits as digits

    data = digits()
    x = (data.data / 16.0).astype("float32").reshape(-1, 8, 8, 1)
    order = np.random.default_rng(0).permutation(len(x))  # a fixed, public split
    x, y = x[order], data.target[order]
    return (x[:1437], y[:1437]), (x[1437:], y[1437:])


def main() -> None:
    arguments = parse()

    import keras

    import tfdp
    from models import digits_cnn

    (x_train, y_train), (x_test, y_test) = load_digits()
    model = digits_cnn()
    model.compile(
        optimizer=tfdp.NoisyAdam(
            arguments.learning_rate,
            l2_norm_clip=arguments.clip,
            target_epsilon=arguments.target_epsilon,
            delta=arguments.delta,
        ),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    arguments.folder.mkdir(parents=True, exist_ok=True)
    model.fit(
        x_train,
        y_train,
        batch_size=arguments.batch_size,
        epochs=arguments.epochs,
        verbose=2 if os.environ.get("CI") else "auto",
        callbacks=[
            tfdp.callbacks.PrivacyLogger(arguments.delta),
            keras.callbacks.CSVLogger(arguments.folder / "history.csv"),
        ],
    )
    _, accuracy = model.evaluate(x_test, y_test, verbose=0)
    statement = tfdp.privacy_statement(model)
    model.save(arguments.folder / "model.keras")
    (arguments.folder / "statement.json").write_text(statement.to_json())

    print(f"\n{statement}\n")
    print(f"Test accuracy: {accuracy:.1%} on {len(x_test)} digits held out.")
    print(f"Model, history and statement are in {arguments.folder}.")


if __name__ == "__main__":
    main()
