"""Perturbed records in files, with their statement beside them."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tfdp.data.perturbation.claims import PerturbationStatement
from tfdp.data.perturbation.released_records import PerturbedRecords
from tfdp.data.records import Records, map_leaves


def write(folder: Path, release: PerturbedRecords, records: Records, statement: PerturbationStatement) -> Path:
    """One .npy file for each leaf; the statement first, so that no record is without it. After an error the folder is empty."""
    names = _file_names(records.spec)
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise ValueError(
            f"{folder} is not empty. Give a new folder: files of two releases side by side could be mixed up."
        )
    try:
        _write_all(folder, names, release, records, statement)
    except BaseException:
        for file in folder.iterdir():
            file.unlink()
        raise
    return folder


def _write_all(
    folder: Path, names: list[str], release: PerturbedRecords, records: Records, statement: PerturbationStatement
) -> None:
    (folder / "statement.txt").write_text(f"{statement}\n")
    (folder / "statement.json").write_text(statement.to_json())
    files: list[np.memmap] = []
    for part, arrays in release.blocks(records):
        files = files or [
            _mapped(folder / f"{name}.npy", array.dtype, (records.size, *array.shape[1:]))
            for name, array in zip(names, arrays, strict=True)
        ]
        for file, array in zip(files, arrays, strict=True):
            file[part] = array
    for file in files:
        file.flush()


def _mapped(file: Path, dtype: np.dtype, shape: tuple[int, ...]) -> np.memmap:
    """A file that is written as an array. Its room is taken at once: a disk that is full while a mapped page is written ends
    the process without a word."""
    array = np.lib.format.open_memmap(file, "w+", dtype, shape)
    if hasattr(os, "posix_fallocate"):
        with file.open("r+b") as opened:
            os.posix_fallocate(opened.fileno(), 0, file.stat().st_size)
    return array


def _file_names(spec: tuple[Any, ...]) -> list[str]:
    """`x['image'][0]` becomes `x.image.0`."""
    named = tuple(map_leaves(_name, part, part_name) for part_name, part in zip(("x", "y"), spec, strict=False))
    names = [name for name in tf.nest.flatten(named) if name is not None]
    if len(set(names)) < len(names):
        raise ValueError(
            "Two parts of the records would have the same file name. Give them names of letters and digits."
        )
    return names


def _name(spec: tf.TensorSpec | None, name: str) -> str | None:
    if spec is None:
        return None
    return ".".join(part for part in re.split(r"[^\w-]+", name) if part)
