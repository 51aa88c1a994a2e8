"""Private convex empirical risk minimisation: logistic regression by the methods that the papers compare theirs with.

Each method is a file that proves what it claims beside the line that needs it. All of them see records whose features lie in a ball
(``records``), and say what is public of a run (``setting``). ``PrivateLogisticRegression`` puts them together in scikit-learn's
conventions, without needing scikit-learn.
"""

from tfdp.erm.bolt_on import BoltOnSGD
from tfdp.erm.gradient_descent import GradientDescent
from tfdp.erm.logistic_regression import PrivateLogisticRegression
from tfdp.erm.objective import ObjectivePerturbation
from tfdp.erm.output import OutputPerturbation
from tfdp.erm.setting import Setting
from tfdp.erm.statement import ConvexStatement

__all__ = [
    "BoltOnSGD",
    "ConvexStatement",
    "GradientDescent",
    "ObjectivePerturbation",
    "OutputPerturbation",
    "PrivateLogisticRegression",
    "Setting",
]
