"""DiskRoom: room for a checkpoint is looked for before one is begun. Where HDF5 finds none in the middle of a write, it crashes."""

import errno
import math
import os
import shutil

import keras


class DiskRoom(keras.callbacks.Callback):
    """Raises an OSError before training, and after an epoch, where a folder has no room for one more checkpoint.

    It looks at no metric, which the privacy statement knows of tfdp's own callbacks. Give it before ``BackupAndRestore``.

    Args:
        folder: where checkpoints are written. It must be there.
    """

    def __init__(self, folder: str | os.PathLike):
        super().__init__()
        self._folder = folder

    def on_train_begin(self, logs: dict | None = None) -> None:
        variables = {id(one): one for one in (*self.model.variables, *self.model.optimizer.variables)}.values()
        size = sum(math.prod(one.shape) * 8 for one in variables)  # of the widest type
        needed, free = 2 * size + 2**20, shutil.disk_usage(self._folder).free  # the new one beside the one before
        if free < needed:
            said = f"a checkpoint needs {needed:,} bytes, and {free:,} are free"
            raise OSError(errno.ENOSPC, said, str(self._folder))

    def on_epoch_end(self, epoch: int, logs: dict | None = None) -> None:
        self.on_train_begin()
