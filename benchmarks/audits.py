"""How far an audit of one run gets: what its bounds allow, and what is found in runs of every mechanism.

    python -m benchmarks.audits ceiling
    python -m benchmarks.audits study --methods noisy adaclip --epsilons 4 10 --seeds 5 --json results/audits.jsonl
    python -m benchmarks.audits table --json results/audits.jsonl

Ceiling: each canary's coin moves a Gaussian of its own by the mu that has the claimed epsilon at a delta of 1e-5, and the
highest and lowest are guessed: the best attack there is on a release with that trade-off curve. Median of 200 such audits.

Study: gradient canaries among 200 records of noise, `--canaries` of them, trained through `fit` by a small network with
`target_epsilon`; lots of a quarter of all records, `--epochs` epochs. A line of JSON for each run; runs that are in the file are not
run again. Methods whose names end in "-records" or "-model" are noise on records: `benchmarks/audit_methods.py`. Table: medians over the seeds.
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np

from benchmarks.audit_methods import DELTA, METHODS, ON_RECORDS, guesses_of, optimizer_of, scores_on_records
from tfdp.accounting import epsilon as epsilon_of
from tfdp.accounting.gdp import mu_for
from tfdp.audit.bounds import epsilon_lower_bound, p_value
from tfdp.audit.tradeoff_bounds import gaussian_epsilon_lower_bound

RECORDS, FEATURES = 200, 5
EPSILONS = (1.0, 4.0, 10.0)


def right_guesses(mu: float, canaries: int, guesses: int, audits: int = 200, seed: int = 0) -> int:
    """The median over simulated audits of a Gaussian release."""
    random = np.random.default_rng(seed)
    coins = random.random((audits, canaries)) < 0.5
    order = np.argsort(mu * coins + random.standard_normal(coins.shape), axis=1)
    coins, half = np.take_along_axis(coins, order, axis=1), guesses // 2
    return int(np.median((~coins[:, :half]).sum(1) + coins[:, canaries - half :].sum(1)))


def ceiling() -> None:
    print(
        "| claimed epsilon | canaries | guesses | right | lower bound | if Gaussian |\n| --- | --- | --- | --- | --- | --- |"
    )
    for claimed in EPSILONS:
        for canaries, guesses in ((100, 30), (1000, 100), (1000, 200), (1000, 500), (1000, 1000)):
            correct = right_guesses(mu_for(claimed, DELTA), canaries, guesses)
            counts = {"canaries": canaries, "guesses": guesses, "correct": correct, "delta": DELTA}
            bounds = epsilon_lower_bound(**counts), gaussian_epsilon_lower_bound(**counts)
            print(
                f"| {claimed:g} | {canaries:,} | {guesses:,} | {correct:,} | {bounds[0]:.2f} | {bounds[1]:.2f} |",
                flush=True,
            )


def audited(method: str, claimed: float, seed: int, canaries: int, epochs: int) -> dict:
    counts, proven = (on_records if method in ON_RECORDS else trained)(method, claimed, seed, canaries, epochs)
    return counts | {
        "proven": proven if np.isfinite(proven) else None,
        "bound": epsilon_lower_bound(canaries=canaries, **counts, delta=DELTA),
        "gaussian": gaussian_epsilon_lower_bound(canaries=canaries, **counts, delta=DELTA),
        "p_value": p_value(min(claimed, proven), DELTA, canaries=canaries, **counts),
    }


def trained(method: str, claimed: float, seed: int, canaries: int, epochs: int) -> tuple[dict, float]:
    import keras

    import tfdp

    random = np.random.default_rng(seed)
    x = random.standard_normal((RECORDS, FEATURES)).astype("float32")

    def make_model():
        model = keras.Sequential([keras.layers.Dense(8, activation="tanh"), keras.layers.Dense(2)])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer=optimizer_of(method, claimed), loss=loss)
        return model

    kind = tfdp.audit.SpreadCanaries if METHODS[method].spread else tfdp.audit.GradientCanaries
    found = tfdp.audit.one_run(
        make_model,
        x,
        (x[:, 0] > 0).astype("int64"),
        canaries=kind(canaries),
        batch_size=(RECORDS + canaries) // 4,
        epochs=epochs,
        delta=DELTA,
        guesses=guesses_of(method, canaries),
        seed=seed,
    )
    return {"guesses": found.guesses, "correct": found.correct}, epsilon_of(found.ledger, delta=DELTA)


def on_records(method: str, claimed: float, seed: int, canaries: int, epochs: int) -> tuple[dict, float]:
    from tfdp.audit.run import correct_guesses

    scores, included, proven = scores_on_records(method, claimed, seed, canaries)
    guesses = guesses_of(method, canaries)
    correct = correct_guesses(scores, included, guesses)
    return {"guesses": guesses, "correct": correct}, np.inf if proven is None else proven


def study(arguments: argparse.Namespace) -> None:
    known = [
        {name: line[name] for name in ("method", "epsilon", "seed", "canaries", "epochs")}
        for line in read(arguments.json)
    ]
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    for seed in range(arguments.seeds):
        for method in arguments.methods:
            for claimed in arguments.epsilons:
                size = {"canaries": arguments.canaries, "epochs": arguments.epochs}
                key = {"method": method, "epsilon": claimed, "seed": seed, **size}
                if key not in known:
                    with arguments.json.open("a") as file:
                        file.write(json.dumps(key | audited(method, claimed, seed, **size)) + "\n")


def read(file: Path) -> list[dict]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def table(lines: list[dict]) -> None:
    print(
        "| method | claimed | proven | canaries | runs | right | lower bound | if Gaussian | p-value of the claim, least |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    of = lambda line: (line["method"], line["epsilon"], line["canaries"])  # noqa: E731
    for key in sorted({of(line) for line in lines}):
        own = [line for line in lines if of(line) == key]
        median = {name: np.median([line[name] for line in own]) for name in ("correct", "bound", "gaussian")}
        bounds = [line["bound"] for line in own]
        proven = "nothing" if own[0]["proven"] is None else f"{own[0]['proven']:.2f}"
        print(
            f"| {key[0]} | {key[1]:g} | {proven} | {key[2]:,} | {len(own)} | {median['correct']:g} of {own[0]['guesses']} | "
            f"{median['bound']:.2f} ({min(bounds):.2f} to {max(bounds):.2f}) | {median['gaussian']:.2f} | "
            f"{min(line['p_value'] for line in own):.2g} |"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["ceiling", "study", "table"])
    parser.add_argument("--methods", nargs="+", choices=[*METHODS, *ON_RECORDS], default=["noisy", "adaclip"])
    parser.add_argument("--epsilons", nargs="+", type=float, default=[4.0, 10.0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--canaries", type=int, default=1000)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--json", type=Path, default=Path("results/audits.jsonl"))
    arguments = parser.parse_args()
    if arguments.command == "ceiling":
        ceiling()
    elif arguments.command == "study":
        study(arguments)
    else:
        table(read(arguments.json))
    return 0


if __name__ == "__main__":
    sys.exit(main())
