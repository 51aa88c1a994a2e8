"""The cost of input perturbation is that of three sides that read the same images."""

import numpy as np
import pytest

from benchmarks import input_perturbation, protocol
from benchmarks.protocol import Entry


@pytest.mark.parametrize("part", ["pipeline", "fit"])
def test_three_sides_are_measured(part, capsys, tmp_path):
    file = tmp_path / "found.json"
    given = ["--parts", part, "--records", "48", "--batch", "16", "--repeats", "1", "--epochs", "2"]
    assert input_perturbation.main([*given, "--json", str(file)]) == 0
    _, entries = protocol.read(file)
    assert [one.method for one in entries] == ["as they are", "perturbed", "perturbed in every epoch"]
    assert all(one.steps == 3 and len(one.step_ms["all"]) == 1 for one in entries)
    assert "| as they are |" in capsys.readouterr().out


def test_perturbed_images_are_noisy_and_stay():
    options = input_perturbation.arguments(["--records", "32", "--batch", "32"])
    images, labels = input_perturbation.records(32)
    for name, dataset in input_perturbation.pipelines(options).items():
        (first, y), (second, z) = (next(iter(dataset)) for _ in range(2))  # in two orders
        in_order = [np.sort(np.asarray(x)[:, 0, 0, 0]) for x in (first, second)]
        assert np.array_equal(*in_order)
        assert sorted(y.numpy()) == sorted(z.numpy()) == sorted(labels)
        assert (name == "as they are") == np.array_equal(in_order[0], np.sort(images[:, 0, 0, 0]))


def test_speed_is_relative_to_the_images_as_they_are():
    times = {"as they are": 3.0, "perturbed": 4.0, "perturbed in every epoch": 6.0}
    entries = [
        Entry("images", "", name, "sgd", "", step_ms=protocol.summary_ms([ms / 1000])) for name, ms in times.items()
    ]
    assert list(input_perturbation.speeds(entries).values()) == [1.0, 0.75, 0.5]
    assert "| perturbed | 4 | 4 to 4 | 75 % |" in input_perturbation.table(entries)
