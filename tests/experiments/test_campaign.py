"""Many runs, none of which is run twice."""

import dataclasses
import json
import time
import types

import pytest

from experiments.campaign import Campaign


@dataclasses.dataclass(frozen=True)
class Counted:
    """A run that says when it is run."""

    number: int
    ran: list = dataclasses.field(default_factory=list, hash=False, compare=False)

    label, dataset = "counted", "digits"

    @property
    def length(self):
        return self.number

    def identity(self):
        return {"number": self.number}

    def execute(self, data_dir, work):
        if self.number < 0:
            raise KeyboardInterrupt
        work.mkdir(parents=True)
        self.ran.append(self.number)
        return {"score": float(self.number), "metric": "accuracy", "seconds": 1.0}


def test_runs_come_back_in_order_and_are_run_once(tmp_path):
    ran, told = [], []
    campaign = Campaign(tmp_path, "runs", None, told.append)
    records = campaign.run_all([Counted(n, ran) for n in (3, 1, 3)])
    assert [record["score"] for record in records] == [3.0, 1.0, 3.0]
    assert ran == [3, 1]
    assert all(record["cpu_seconds"] >= 0 for record in records)
    assert told[-1].startswith("2 of 2: counted: accuracy 1") and told[-1].endswith("0 s left)")
    assert not (tmp_path / "unfinished").exists()


def test_the_time_left_is_told_by_how_long_runs_are(tmp_path, monkeypatch):
    now, told = [0.0], []
    monkeypatch.setattr(
        "experiments.campaign.time", types.SimpleNamespace(monotonic=lambda: now[0], process_time=time.process_time)
    )

    class Slow(Counted):
        def execute(self, data_dir, work):
            now[0] += 10 * self.length
            return super().execute(data_dir, work)

    Campaign(tmp_path, "runs", None, told.append).run_all([Slow(2), Slow(9)])
    assert told[0].endswith("90 s left)") and told[1].endswith("0 s left)")


def test_what_is_finished_stays_when_a_run_is_broken_off(tmp_path):
    ran = []
    with pytest.raises(KeyboardInterrupt):
        Campaign(tmp_path, "runs", None, print).run_all([Counted(1, ran), Counted(-1, ran), Counted(2, ran)])
    Campaign(tmp_path, "runs", None, print).run_all([Counted(1, ran), Counted(2, ran)])
    assert ran == [1, 2]
    assert [json.loads(line)["score"] for line in (tmp_path / "runs.jsonl").read_text().splitlines()] == [1.0, 2.0]


@pytest.mark.parametrize("line", ["7", '["run", "score"]', '{"run": {"number": 1}}', '{"score": 1.0}'])
def test_a_line_that_is_not_of_a_run_is_named_and_nothing_is_run(line, tmp_path):
    file = tmp_path / "runs.jsonl"
    content = '{"run": {"number": 1}, "score": 1.0}\n{"run": cut off\n' + f"{line}\n"
    file.write_text(content)
    with pytest.raises(ValueError, match=r"Line 3 of .*runs.jsonl is not of a run"):
        Campaign(tmp_path, "runs", None, print)
    assert file.read_text() == content


def test_a_data_set_that_is_not_here_is_found_before_the_first_run(tmp_path):
    class OnAdult(Counted):
        dataset = "adult"

    ran = []
    with pytest.raises(FileNotFoundError, match="adult is not here"):
        Campaign(tmp_path, "runs", None, print).run_all([Counted(1, ran), OnAdult(2, ran)])
    assert not ran


def test_a_line_that_was_cut_off_is_run_again(tmp_path):
    ran = []
    Campaign(tmp_path, "runs", None, print).run_all([Counted(1, ran)])
    with (tmp_path / "runs.jsonl").open("a") as file:
        file.write('{"run": {"number": 2}, "sco')
    records = Campaign(tmp_path, "runs", None, print).run_all([Counted(1, ran), Counted(2, ran)])
    assert ran == [1, 2] and [record["score"] for record in records] == [1.0, 2.0]
    again = Campaign(tmp_path, "runs", None, print)
    assert again.record(Counted(2)) is not None
