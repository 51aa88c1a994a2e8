"""Facts of runs that were never made: ledgers and fit records by hand."""

from tfdp.accounting import (
    Budget,
    FitRecord,
    GaussianEvent,
    Ledger,
    NotPrivateEvent,
    Poisson,
    Sampling,
    Shuffled,
    Watcher,
)
from tfdp.accounting.claims import MEMBERSHIP, Claim
from tfdp.report.facts import Facts
from tfdp.report.statement import Statement, statement_of

LOTS = Poisson(256 / 60000, 60000)
DECLARED = Shuffled(60000, 256, 235)
WEIGHTS = 1000
LOSS_STOP = Watcher("EarlyStopping", "loss", "stops training")
VAL_STOP = Watcher("EarlyStopping", "val_loss", "stops training", validation=True)
UNKNOWN = Watcher("MyCallback", None, "unknown")


def ledger(*noises: float, steps: int = 100, sampling: Sampling = LOTS) -> Ledger:
    """A line for each noise multiplier."""
    made = Ledger()
    for noise in noises:
        made = made.record(GaussianEvent(noise), sampling, steps)
    return made


def fit(steps: int = 100, weights: int = WEIGHTS, **circumstances) -> FitRecord:
    return FitRecord(steps, weights, **circumstances)


def facts(made: Ledger, *fits: FitRecord, **others) -> Facts:
    return Facts(made, fits, model_weights=WEIGHTS, **others)


def statement(made: Ledger, *fits: FitRecord, delta=None, settings_fixed_beforehand=False, **others) -> Statement:
    return statement_of(facts(made, *fits, **others), delta, settings_fixed_beforehand)


def main(made: Statement) -> Claim:
    assert made.claims[0].protects == MEMBERSHIP
    return made.claims[0]


def by(made: Statement, method: str) -> Claim:
    (found,) = [claim for claim in made.claims if claim.how.startswith(f"{method}:")]
    return found


def not_private(reason: str = "noise_seed was given") -> Ledger:
    return Ledger().record(NotPrivateEvent(reason), LOTS, 1)


def filter_budget(target: float = 2.0, delta: float = 1e-5, order: float = 8.0) -> Budget:
    return Budget(target, delta, "rdp", order)


SINGLE = ledger(1.1, steps=14062)
SEVERAL = ledger(1.1, 0.9)
