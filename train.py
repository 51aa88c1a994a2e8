"""One private training run on data that comes with scikit-learn: 1,797 handwritten digits, 8 x 8 pixels.

python train.py            prints Keras's progress, the test accuracy and the privacy of the run
python train.py --help     what can be changed
"""

import argparse
import os

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
        "--noise-multiplier", type=float, default=5.0, help="noise in units of the clip; 0 is not private"
    )
    parser.add_argument("--delta", type=float, default=1e-5, help="at which epsilon is stated")
    parser.add_argument("--model-path", default="saved_models/digits.keras", help="where the trained model goes")
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
            noise_multiplier=arguments.noise_multiplier,
        ),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    model.fit(
        x_train,
        y_train,
        batch_size=arguments.batch_size,
        epochs=arguments.epochs,
        verbose=2 if os.environ.get("CI") else "auto",
    )
    _, accuracy = model.evaluate(x_test, y_test, verbose=0)
    os.makedirs(os.path.dirname(arguments.model_path) or ".", exist_ok=True)
    model.save(arguments.model_path)

    ledger = model.optimizer.ledger
    epsilon = tfdp.accounting.epsilon(ledger, delta=arguments.delta)
    print(f"\nTest accuracy: {accuracy:.1%} on {len(x_test)} digits held out")
    for line in ledger:
        rate = f"{line.sampling.sampling_rate:.1%}" if hasattr(line.sampling, "sampling_rate") else "100%"
        print(
            f"Released: {line.steps} noisy gradients ({line.event}), each record in each of them with probability {rate}"
        )
    print(
        f"Privacy: epsilon = {epsilon:.2f} at delta = {arguments.delta:g} (proven, PLD accountant) for the membership of a "
        f"record in the training set; neighbours: one record's content replaced by nothing, the number of records is public."
    )
    print("Not covered: the metrics printed above, and the choice of these settings.")
    print(f"Model saved to {arguments.model_path}; its ledger is inside.")


if __name__ == "__main__":
    main()
