"""Private training runs from the command line: `python train.py --help`. Everything is in `experiments/commands.py`."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from experiments.commands import main

if __name__ == "__main__":
    raise SystemExit(main())
