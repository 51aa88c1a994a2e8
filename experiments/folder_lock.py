"""One process at a time in a folder: two would write the same lines and checkpoints."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

FILE = ".lock"


class InUse(Exception):
    """Another process holds the folder."""


@contextlib.contextmanager
def alone_in(folder: Path, otherwise: str = "") -> Iterator[None]:
    """Makes the folder, and holds it until the end; one in which nothing was left is removed again.

    The system lets go of it when the process ends, however it ends. Where it knows no such locks (Windows, some network file
    systems), all that is found out is whether the folder can be written to.

    Args:
        otherwise: what can be done other than to wait, such as "give another --folder".

    Raises:
        InUse: another process holds it.
        ValueError: it can't be a folder.
        OSError: it can't be written to.
    """
    made = [one for one in (folder, *folder.parents) if not one.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise ValueError(f"{folder} can't be a folder: there is a file of that name, or of one above it.") from None
    try:
        with _held(folder, otherwise):
            yield
    finally:
        for one in made:
            with contextlib.suppress(OSError):  # something is in it
                one.rmdir()


@contextlib.contextmanager
def _held(folder: Path, otherwise: str) -> Iterator[None]:
    path = folder / FILE
    file = _locked(path)
    if file is None:
        advice = f"Wait until it has ended{', or ' if otherwise else ''}{otherwise}."
        raise InUse(f"another process is at work in {folder}. {advice}")
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # Windows deletes no open file
            path.unlink()  # while it is held, so that nobody else's is deleted
        file.close()


def _locked(path: Path) -> TextIO | None:
    """The file, open and locked; None if another process has it."""
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)  # whoever ended just now may have removed it
        file = path.open("w")
        try:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return None
        except OSError:  # no locks on this file system
            return file
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                return file
        file.close()  # whoever had it deleted it between the two
