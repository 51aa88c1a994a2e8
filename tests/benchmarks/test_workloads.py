"""The workloads are what the tables say."""

import keras
import numpy as np
import pytest

from benchmarks import workloads


@pytest.mark.parametrize("name", workloads.WORKLOADS)
def test_a_network_has_the_weights_that_peers_must_have(name):
    workload = workloads.get(name)
    assert workload.model().count_params() == workload.weights


@pytest.mark.parametrize("name", sorted(set(workloads.WORKLOADS) - {"resnet18@64"}))
def test_a_network_gives_a_loss_for_its_records(name):
    workload = workloads.get(name)
    features, labels = workload.records(3)
    assert np.isfinite(float(workload.loss()(labels, workload.model()(features))))


@pytest.mark.parametrize("name", workloads.WORKLOADS)
def test_fewer_records_are_the_first_of_more(name):
    few, many = workloads.get(name).records(2), workloads.get(name).records(4)
    keras.tree.map_structure(lambda a, b: np.testing.assert_array_equal(a, b[:2]), few, many)


def test_a_workload_comes_at_any_lot_size():
    assert workloads.get("cnn@32").lot == 32
    assert workloads.get("cnn").lot == 256
    with pytest.raises(ValueError, match="there are mlp@256"):
        workloads.get("vgg@64")
