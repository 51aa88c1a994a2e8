"""TensorFloat-32 is off while it must be, and other ways to fewer bits are refused."""

import threading

import pytest
import tensorflow as tf

from tfdp.gradients.precision import full_precision, refuse_reduced_precision

switch = tf.config.experimental


@pytest.fixture(autouse=True)
def as_it_was():
    before = switch.tensor_float_32_execution_enabled()
    yield
    switch.enable_tensor_float_32_execution(before)


@pytest.mark.parametrize("before", [True, False])
def test_tensor_float_32_is_off_inside_and_as_it_was_after(before):
    switch.enable_tensor_float_32_execution(before)
    with pytest.raises(ZeroDivisionError), full_precision():
        assert not switch.tensor_float_32_execution_enabled()
        with full_precision():
            pass
        assert not switch.tensor_float_32_execution_enabled()
        raise ZeroDivisionError
    assert switch.tensor_float_32_execution_enabled() == before


def test_of_overlapping_threads_the_last_one_out_restores():
    """The first in leaves first: what it found must not be put back while the second is inside."""
    switch.enable_tensor_float_32_execution(True)
    first_in, second_in, first_out = threading.Event(), threading.Event(), threading.Event()
    seen = []

    def first():
        with full_precision():
            first_in.set()
            second_in.wait(10)
        first_out.set()

    def second():
        first_in.wait(10)
        with full_precision():
            second_in.set()
            first_out.wait(10)
            seen.append(switch.tensor_float_32_execution_enabled())

    threads = [threading.Thread(target=run) for run in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert seen == [False]
    assert switch.tensor_float_32_execution_enabled()


def test_many_threads_leave_it_as_it_was():
    switch.enable_tensor_float_32_execution(True)
    wrong = []

    def run():
        for _ in range(200):
            with full_precision():
                if switch.tensor_float_32_execution_enabled():
                    wrong.append(True)

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not wrong
    assert switch.tensor_float_32_execution_enabled()


REDUCED = {
    "ONEDNN_DEFAULT_FPMATH_MODE": "BF16",
    "DNNL_DEFAULT_FPMATH_MODE": "any",
    "TF_SET_ONEDNN_FPMATH_MODE": "bf16",
    "NVIDIA_TF32_OVERRIDE": "1",
    "TF_ENABLE_CUBLAS_TENSOR_OP_MATH_FP32": "1",
    "TF_ENABLE_CUDNN_TENSOR_OP_MATH_FP32": "true",
    "TF_ENABLE_CUDNN_RNN_TENSOR_OP_MATH_FP32": "1",
    "TF_ENABLE_AUTO_MIXED_PRECISION": "1",
    "TF_ENABLE_AUTO_MIXED_PRECISION_GRAPH_REWRITE": "1",
    "XLA_FLAGS": "--xla_dump_to=/nowhere --xla_cpu_enable_fast_math",
}


@pytest.mark.parametrize("name", REDUCED)
def test_environment_variables_that_take_bits_away_are_refused_by_name(name, monkeypatch):
    monkeypatch.setenv(name, REDUCED[name])
    with pytest.raises(ValueError, match=f"{name}(.|\n)*before TensorFlow is imported"):
        refuse_reduced_precision()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ONEDNN_DEFAULT_FPMATH_MODE", "STRICT"),
        ("NVIDIA_TF32_OVERRIDE", "0"),
        ("TF_ENABLE_AUTO_MIXED_PRECISION", "0"),
        ("XLA_FLAGS", "--xla_cpu_enable_fast_math=false --xla_allow_excess_precision=true"),
    ],
)
def test_settings_that_leave_float32_as_it_is_are_let_through(name, value, monkeypatch):
    monkeypatch.setenv(name, value)
    refuse_reduced_precision()


def test_flags_in_a_file_are_found(tmp_path, monkeypatch):
    (tmp_path / "flags").write_text("--xla_gpu_enable_bf16_3way_gemm=true\n")
    monkeypatch.setenv("XLA_FLAGS", str(tmp_path / "flags"))
    with pytest.raises(ValueError, match="xla_gpu_enable_bf16_3way_gemm"):
        refuse_reduced_precision()


@pytest.mark.parametrize("name", ["auto_mixed_precision", "auto_mixed_precision_onednn_bfloat16"])
def test_rewrites_of_the_graph_to_half_precision_are_refused(name):
    tf.config.optimizer.set_experimental_options({name: True})
    try:
        with pytest.raises(ValueError, match=name):
            refuse_reduced_precision()
    finally:
        tf.config.optimizer.set_experimental_options({name: False})
    refuse_reduced_precision()
