"""Noise on the records themselves, before any training (both papers of Kang et al. 2020).

* `InputPerturbation`: clip and one fixed draw of noise for each record (``blocks``, from a keyed hash, ``seeds``), as a transform
  of data sets (``dataset``), of arrays, or into files (``files``); what is proven of it is in ``claims``.
* `InfluencePerturbation`: noise on the records that move a model most (``influence``), in rounds (``influence_rounds``) between steps of its own or
  those of `fit` (``influence_callback``), on records that change with them (``records_so_far``). Nothing is proven of it.
"""

from tfdp.data.perturbation.claims import PerturbationStatement
from tfdp.data.perturbation.influence import Influence
from tfdp.data.perturbation.influence_perturbation import InfluencePerturbation, PerturbedTraining
from tfdp.data.perturbation.input_perturbation import InputPerturbation

__all__ = ["Influence", "InfluencePerturbation", "InputPerturbation", "PerturbationStatement", "PerturbedTraining"]
