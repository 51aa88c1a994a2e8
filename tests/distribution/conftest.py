"""What all tests of this folder share: each group of cases runs once, whatever the number of pytest's workers."""

import contextlib
import json
import os
import pathlib
import socket
import subprocess
import time
from collections.abc import Callable, Iterator

import pytest

from tests.distribution import cases

LONGEST = 600  # seconds, on a machine that does much else


@pytest.fixture(scope="session")
def on_devices(tmp_path_factory, worker_id) -> dict:
    """What the cases of several devices found."""
    return once(tmp_path_factory, worker_id, "devices", run_on_devices)


@pytest.fixture(scope="session")
def on_workers(tmp_path_factory, worker_id) -> dict:
    """What the cases of two processes found: by worker, before one was killed ("first") and after ("resumed")."""
    return once(tmp_path_factory, worker_id, "workers", run_on_workers)


@pytest.fixture(scope="session")
def worker_id() -> str:
    return os.environ.get("PYTEST_XDIST_WORKER", "master")


def once(tmp_path_factory, worker_id: str, name: str, run: Callable[[pathlib.Path], dict]) -> dict:
    """One of pytest's workers runs it, the others wait for what it found."""
    folder = tmp_path_factory.getbasetemp()
    if worker_id == "master":
        return run(folder)
    claimed, told = folder.parent / f"{name}.claimed", folder.parent / f"{name}.json"
    try:
        os.close(os.open(claimed, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        deadline = time.monotonic() + 2 * LONGEST
        while not told.exists():
            assert time.monotonic() < deadline
            time.sleep(0.2)
        return json.loads(told.read_text())
    try:
        found = run(folder)
    except BaseException as error:
        found = {"failed": str(error)}
        raise
    finally:
        unfinished = told.with_suffix(".unfinished")
        unfinished.write_text(json.dumps(found))
        unfinished.rename(told)
    return found


def run_on_devices(folder: pathlib.Path) -> dict:
    with ended(cases.started("tests.distribution.on_devices")) as process:
        output, errors = process.communicate(timeout=LONGEST)
        assert process.returncode == 0, errors[-3000:]
        return cases.last_line(output)


def run_on_workers(folder: pathlib.Path) -> dict:
    """The second worker kills itself in the middle of the last case; the first, which waits for it, is ended here."""
    with two_workers(folder, "first") as (chief, other):
        output, errors = other.communicate(timeout=LONGEST)
        assert other.returncode == 9, errors[-3000:]
        told = [first_line(chief), cases.last_line(output)]
    with two_workers(folder, "resumed") as workers:
        outputs = [worker.communicate(timeout=LONGEST) for worker in workers]
        assert [worker.returncode for worker in workers] == [0, 0], [errors[-3000:] for _, errors in outputs]
    return {"first": told, "resumed": [cases.last_line(output) for output, _ in outputs]}


def first_line(process: subprocess.Popen) -> dict:
    """What a process told that has not ended."""
    for line in process.stdout:
        if line.startswith("{"):
            return json.loads(line)
    raise AssertionError("the process told nothing")


@contextlib.contextmanager
def two_workers(folder: pathlib.Path, phase: str) -> Iterator[list[subprocess.Popen]]:
    """Two processes of one cluster on this machine, which end with the context."""
    addresses = [f"127.0.0.1:{port}" for port in free_ports(2)]
    with contextlib.ExitStack() as both:
        processes = []
        for index in range(2):
            task = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
            arguments = (str(folder), phase)
            process = cases.started("tests.distribution.on_workers", *arguments, TF_CONFIG=json.dumps(task))
            processes.append(both.enter_context(ended(process)))
        yield processes


@contextlib.contextmanager
def ended(process: subprocess.Popen) -> Iterator[subprocess.Popen]:
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()


def free_ports(number: int) -> list[int]:
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(number)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
