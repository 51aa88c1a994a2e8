"""The same workloads in other libraries, each in an environment of its own: see `measure.py` and `build.sh`."""
