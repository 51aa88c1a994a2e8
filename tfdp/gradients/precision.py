"""float32 products are computed in float32, nothing less.

Norms allow for what float32 sums round (``gradients/allowances.py``). TensorFloat-32, bfloat16 and float16 keep 10, 7 and 10 bits of
a number in place of 23: a norm may then be too small by a thousandth and more, and one record's contribution larger than
the clip by as much. TensorFloat-32 is on by default wherever a GPU has it; TPUs take bfloat16 by the same switch. ::

    refuse_reduced_precision()
    with full_precision():
        ...  # trace, compile and run: XLA asks when it compiles, other kernels when they run

A model in half precision (``mixed_float16``, ``mixed_bfloat16``) is another matter: its layers compute in half precision, but norms and
sums are computed in float32 of the factors as they came out.
"""

import contextlib
import os
import threading
from collections.abc import Iterator

import tensorflow as tf

_lock = threading.Lock()
_inside = 0
_before = True

_ON = ("1", "true", "t", "yes", "y", "on")
# Read by oneDNN and TensorFlow's oneDNN kernels on CPUs; these values leave float32 as it is.
_FPMATH_MODES = ("ONEDNN_DEFAULT_FPMATH_MODE", "DNNL_DEFAULT_FPMATH_MODE", "TF_SET_ONEDNN_FPMATH_MODE")
_STRICT = ("", "strict")
# Where they are on, libraries for GPUs or rewrites of the graph take fewer bits.
_SWITCHES = (
    "NVIDIA_TF32_OVERRIDE",
    "TF_ENABLE_CUBLAS_TENSOR_OP_MATH_FP32",
    "TF_ENABLE_CUDNN_TENSOR_OP_MATH_FP32",
    "TF_ENABLE_CUDNN_RNN_TENSOR_OP_MATH_FP32",
    "TF_ENABLE_AUTO_MIXED_PRECISION",
    "TF_ENABLE_AUTO_MIXED_PRECISION_GRAPH_REWRITE",
)
# Fast math takes it that there is no NaN and no infinity: a gradient that is not finite would not be found.
_XLA_FLAGS = (
    "xla_cpu_enable_fast_math",
    "xla_enable_fast_math",
    "xla_gpu_default_to_alg_dot_bf16_bf16_f32",
    "xla_gpu_enable_bf16_3way_gemm",
    "xla_gpu_enable_bf16_6way_gemm",
)


@contextlib.contextmanager
def full_precision() -> Iterator[None]:
    """TensorFloat-32 is off inside. Blocks of several threads may overlap: the last to end restores what was there before
    the first."""
    global _inside, _before
    switch = tf.config.experimental
    with _lock:
        if _inside == 0:
            _before = switch.tensor_float_32_execution_enabled()
            switch.enable_tensor_float_32_execution(False)
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0:
                switch.enable_tensor_float_32_execution(_before)


def refuse_reduced_precision() -> None:
    """Raises ValueError, with the cure, where a setting that ``full_precision`` can't reach makes float32 products less
    precise than float32. Most of them are read once in a process: they have to be gone before TensorFlow is imported."""
    for what, cure in _reducing():
        raise ValueError(
            f"{what} lets products of float32 numbers be computed with fewer bits than float32 has. Norms of examples' "
            f"gradients would come out too small, and clipping would not keep to l2_norm_clip. {cure}"
        )


def _reducing() -> Iterator[tuple[str, str]]:
    """(what reduces precision, how to get rid of it)."""
    for name, on in tf.config.optimizer.get_experimental_options().items():
        if name.startswith("auto_mixed_precision") and on:
            yield (
                f"tf.config.optimizer.set_experimental_options({{{name!r}: True}})",
                f"Set it to False: tf.config.optimizer.set_experimental_options({{{name!r}: False}}). For a model in half "
                f"precision, use keras.mixed_precision.set_global_policy('mixed_bfloat16'), which is allowed for.",
            )
    for name in _FPMATH_MODES:
        if os.environ.get(name, "").strip().lower() not in _STRICT:
            yield _variable(name)
    for name in _SWITCHES:
        if os.environ.get(name, "").strip().lower() in _ON:
            yield _variable(name)
    for flag in _xla_flags():
        name, _, value = flag.lstrip("-").partition("=")
        if name in _XLA_FLAGS and value.lower() in ("", *_ON):
            yield (
                f"The flag --{name} in the environment variable XLA_FLAGS",
                f"Take it out, or write --{name}=false, before TensorFlow is imported, and start Python again.",
            )


def _variable(name: str) -> tuple[str, str]:
    return (
        f"The environment variable {name}={os.environ[name]}",
        f"Remove it (unset {name}) before TensorFlow is imported, and start Python again.",
    )


def _xla_flags() -> list[str]:
    """XLA_FLAGS holds flags, or the name of a file that does."""
    flags = os.environ.get("XLA_FLAGS", "").strip()
    if flags and not flags.startswith("-"):
        try:
            with open(flags) as file:
                flags = file.read()
        except OSError:
            return []
    return flags.split()
