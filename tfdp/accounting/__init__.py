"""Privacy accounting: what was released (the ledger) and what it costs (epsilon, delta, trade-off curves).

Describe first, compute later: events and samplings are plain data, a `Ledger` lists them, the accountants
price a ledger and refuse, with a reason, what they do not support. This room imports neither TensorFlow nor
Keras, and loads dp-accounting and scipy only when a number is asked for.
"""

from tfdp.accounting.accountants import delta, epsilon, report
from tfdp.accounting.budgets import Budget
from tfdp.accounting.calibration import gdp_noise_multiplier, max_more_steps, max_steps, noise_multiplier
from tfdp.accounting.codebooks import Codebook
from tfdp.accounting.events import (
    EncodedEvent,
    Event,
    GaussianEvent,
    GaussianOnGridEvent,
    MicrobatchedEvent,
    NotPrivateEvent,
    PublishedEvent,
)
from tfdp.accounting.finite_support import finite_support_delta
from tfdp.accounting.fit_records import FitRecord, Watcher
from tfdp.accounting.gdp import gdp_delta, gdp_epsilon, gdp_mu
from tfdp.accounting.information import (
    distortion_components,
    distortion_rate,
    mutual_information_bound,
    rate_distortion,
)
from tfdp.accounting.ledger import Ledger, Line
from tfdp.accounting.noise_checks import check_noise
from tfdp.accounting.noise_comparison import NoiseComparison, compare_noises
from tfdp.accounting.noise_tails import noise_tails_delta
from tfdp.accounting.reports import Report, Status
from tfdp.accounting.sampled_noise import sampled_noise_rdp
from tfdp.accounting.samplings import FixedSize, FullBatch, Poisson, Relation, Sampling, Shuffled
from tfdp.accounting.schedules import Schedule
from tfdp.accounting.tradeoff_curves import Tradeoff, epsilon_delta_tradeoff, gdp_tradeoff, tradeoff

__all__ = [
    "Budget",
    "Codebook",
    "EncodedEvent",
    "Event",
    "FitRecord",
    "FixedSize",
    "FullBatch",
    "GaussianEvent",
    "GaussianOnGridEvent",
    "Ledger",
    "Line",
    "MicrobatchedEvent",
    "NoiseComparison",
    "NotPrivateEvent",
    "Poisson",
    "PublishedEvent",
    "Relation",
    "Report",
    "Sampling",
    "Schedule",
    "Shuffled",
    "Status",
    "Tradeoff",
    "Watcher",
    "check_noise",
    "compare_noises",
    "delta",
    "distortion_components",
    "distortion_rate",
    "epsilon",
    "epsilon_delta_tradeoff",
    "finite_support_delta",
    "gdp_delta",
    "gdp_epsilon",
    "gdp_mu",
    "gdp_noise_multiplier",
    "gdp_tradeoff",
    "max_more_steps",
    "max_steps",
    "mutual_information_bound",
    "noise_multiplier",
    "noise_tails_delta",
    "rate_distortion",
    "report",
    "sampled_noise_rdp",
    "tradeoff",
]
