"""Dependencies between rooms point one way, and what tfdp needs of Keras's private names is there."""

import ast
import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest

import tfdp

PACKAGE = pathlib.Path(tfdp.__file__).parent
ROOMS = sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py"))

# What a room may import of tfdp beside itself. A room that is not listed yet has to be thought about, and listed.
ALLOWED = {
    "noise": set(),
    "accounting": {"noise"},
    "gradients": set(),
    "models": {"accounting", "gradients"},
    "mechanisms": {"gradients", "accounting", "noise"},
    "data": {"accounting", "mechanisms"},
    "optimizers": {"accounting", "data", "gradients", "mechanisms"},
    "callbacks": {"accounting", "optimizers"},
    "report": {"accounting", "data", "gradients", "mechanisms", "optimizers"},
    "erm": {"accounting", "data", "mechanisms", "optimizers", "report"},
    "audit": {"accounting", "mechanisms", "optimizers"},
}
WITHOUT_TENSORFLOW = {"accounting", "noise"}


def imported_modules(path: pathlib.Path) -> set[str]:
    """The full names of all modules that a file imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are written in full"
            found |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module}
    return found


def imports_of(room: str) -> dict[str, set[str]]:
    return {str(path.relative_to(PACKAGE)): imported_modules(path) for path in (PACKAGE / room).rglob("*.py")}


def test_every_room_is_known():
    assert set(ROOMS) <= set(ALLOWED)


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_the_rooms_below_it(room):
    for path, modules in imports_of(room).items():
        others = {name.split(".")[1] for name in modules if name.startswith("tfdp.")} & set(ROOMS)
        assert others - {room} <= ALLOWED[room], path
        assert "tfdp" not in {name for name in modules if "." not in name}, f"{path} imports the package itself"


@pytest.mark.parametrize("room", ROOMS)
def test_rooms_without_tensorflow_do_not_import_it(room):
    frameworks = {"tensorflow", "keras"}
    for path, modules in imports_of(room).items():
        used = {name.split(".")[0] for name in modules} & frameworks
        assert not used or room not in WITHOUT_TENSORFLOW, path


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_says_what_it_is_for_and_exports_its_names(room):
    tree = ast.parse((PACKAGE / room / "__init__.py").read_text())
    assert ast.get_docstring(tree)
    assert any(isinstance(node, ast.Assign) and node.targets[0].id == "__all__" for node in tree.body)


def test_the_arrows_make_no_circle():
    def below(room, path=()):
        assert room not in path, path
        for other in ALLOWED[room]:
            below(other, (*path, room))

    for room in ALLOWED:
        below(room)


ROOT = PACKAGE.parent
# Beside the package: what each folder may import of the others.
BESIDE = {
    "models": set(),
    "experiments": {"models", "tfdp"},
    "benchmarks": {"models", "tfdp", "experiments"},
    "tfdp": set(),
}


@pytest.mark.parametrize("folder", BESIDE)
def test_folders_beside_the_package_import_in_one_direction(folder):
    for path in (ROOT / folder).rglob("*.py"):
        others = {name.split(".")[0] for name in imported_modules(path)} & set(BESIDE)
        assert others - {folder} <= BESIDE[folder], path


LOADED = "import sys, tfdp.accounting, tfdp.noise; print(sorted({'tensorflow', 'keras', 'tf_keras', 'jax'} & set(sys.modules)))"


def test_accounting_and_noise_load_neither_tensorflow_nor_keras():
    process = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True)
    assert process.stdout.strip() == "[]"


MODEL_NAMES = {
    "_call_has_training_arg",
    "_clear_losses",
    "_compile_config",
    "_compile_loss",
    "_compile_metrics",
    "_compute_loss",
    "_distribute_strategy",
    "_flatten_layers",
    "_jit_compile",
    "_loss_tracker",
    "_maybe_symbolic_build",
    "distribute_strategy",
    "make_train_function",
    "test_step",
    "train_function",
    "train_step",
}
LAYER_NAMES = {
    "_losses",
    "_metrics",
    "_non_trainable_variables",
    "_seed_generators",
    "_trainable_variables",
    "activity_regularizer",
    "compute_dtype",
}
VARIABLE_NAMES = {"_direct_assign", "assign", "constraint", "overwrite_with_gradient", "regularizer", "value"}
COMPILE_LOSS_NAMES = {"_flat_losses", "_metrics", "_user_loss", "_user_loss_weights"}
COMPILE_METRICS_NAMES = {"_flat_metrics", "_flat_weighted_metrics"}
OPTIMIZER_NAMES = {
    "_all_reduce_sum_gradients",
    "_distribution_strategy",
    "_trainable_variables",
    "_variables",
    "finalize_variable_values",
    "scale_loss",
}


@pytest.fixture(scope="module")
def compiled() -> keras.Model:
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse", metrics=["mae"])
    model.evaluate(np.ones((2, 2)), np.ones((2, 1)), verbose=0)  # some names come with the first batch
    return model


def test_the_private_names_of_keras_are_there(compiled):
    for target, names in (
        (compiled, MODEL_NAMES),
        (compiled.layers[0], LAYER_NAMES),
        (compiled.trainable_variables[0], VARIABLE_NAMES),
        (compiled.optimizer, OPTIMIZER_NAMES),
        (compiled._compile_loss, COMPILE_LOSS_NAMES),
        (compiled._compile_metrics, COMPILE_METRICS_NAMES),
    ):
        assert {name for name in names if not hasattr(target, name)} == set()


def test_the_private_modules_of_keras_are_there():
    from keras.src.saving.keras_saveable import KerasSaveable
    from keras.src.trainers.data_adapters import array_slicing, data_adapter_utils
    from keras.src.utils import tracking

    assert callable(array_slicing.train_validation_split)
    assert callable(data_adapter_utils.class_weight_to_sample_weights)
    assert callable(tracking.no_automatic_dependency_tracking)
    assert callable(keras.src.random.seed_generator.global_seed_generator)
    assert issubclass(keras.Model, KerasSaveable)
    assert isinstance(keras.src.random.seed_generator.GLOBAL_SEED_GENERATOR, str)
    assert callable(keras.src.backend.common.global_state.set_global_attribute)
    assert callable(keras.src.losses.loss.scale_loss_for_distribution)


def test_compile_loss_keeps_its_parts_where_they_are_looked_for(compiled):
    (flat,) = compiled._compile_loss._flat_losses
    assert isinstance(flat._replace(loss=None), type(flat))
    assert isinstance(flat.loss, keras.losses.Loss)
    assert isinstance(compiled._compile_loss._metrics, list)
    (part,) = [part for part in compiled._compile_metrics._flat_metrics if part]
    assert part.output_name is None
    assert [metric.name for metric in part.metrics] == ["mae"]


@pytest.mark.parametrize("name", ["compile", "fit", "train_on_batch", "get_compile_config"])
def test_the_hook_is_on_a_base_class_of_the_model(name):
    import tfdp.optimizers  # noqa: F401

    definer = next(c for c in keras.Model.__mro__ if name in c.__dict__)
    assert definer is not keras.Model
    assert definer.__dict__[name]._tfdp


def test_every_private_name_that_is_used_is_pinned():
    """`model._something` and the like, where the name is not tfdp's own."""
    pinned = MODEL_NAMES | LAYER_NAMES | VARIABLE_NAMES | OPTIMIZER_NAMES | COMPILE_LOSS_NAMES | COMPILE_METRICS_NAMES
    own = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                own.add(node.name)
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                own.add(node.attr)
    used = {
        node.attr: str(path.relative_to(PACKAGE))
        for path in (PACKAGE / "optimizers").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__")
    }
    strangers = {name: path for name, path in used.items() if name not in own | pinned}
    assert set(strangers) <= {"_keras_mask"}, strangers


ONCE = """
import sys, tfdp.mechanisms
import tfdp.optimizers, tfdp.report
for name, module in list(sys.modules.items()):
    room, _, own = name.rpartition(".")
    assert not room.startswith("tfdp") or getattr(sys.modules[room], own) is module, name
"""


def test_a_room_that_brings_keras_makes_no_module_run_twice():
    """The optimizers are registered with Keras at the end of the import that brings it, which may be their own."""
    subprocess.run([sys.executable, "-c", ONCE], check=True, capture_output=True)
