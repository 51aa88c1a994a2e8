"""What all tests of this folder share: each group of cases runs once, whatever the number of pytest's workers."""

import contextlib
import json
import os
import pathlib
import socket
import time
from collections.abc import Callable, Iterator

import pytest

from tests.distribution import cases


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
        deadline = time.monotonic() + 2 * cases.LONGEST
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
    with cases.started("tests.distribution.on_devices", folder / "devices.log") as devices:
        return devices.ends()


def run_on_workers(folder: pathlib.Path) -> dict:
    """The second worker kills itself in the middle of the last case; the first, which waits for it, is ended here."""
    with two_workers(folder, "first") as (chief, other):
        told = [other.ends(code=9), chief.told()][::-1]
    with two_workers(folder, "resumed") as workers:
        return {"first": told, "resumed": [worker.ends() for worker in workers]}


@contextlib.contextmanager
def two_workers(folder: pathlib.Path, phase: str) -> Iterator[list[cases.Started]]:
    """Two processes of one cluster on this machine."""
    addresses = [f"127.0.0.1:{port}" for port in free_ports(2)]
    with contextlib.ExitStack() as both:
        workers = []
        for index in range(2):
            task = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
            log, told = folder / f"{phase}_{index}.log", (str(folder), phase)
            worker = cases.started("tests.distribution.on_workers", log, *told, TF_CONFIG=json.dumps(task))
            workers.append(both.enter_context(worker))
        yield workers


def free_ports(number: int) -> list[int]:
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(number)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
