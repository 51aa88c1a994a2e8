"""scikit-learn's conventions without scikit-learn."""

import ast
import pathlib

import tfdp.erm


def test_no_module_needs_scikit_learn_to_be_imported():
    for path in pathlib.Path(tfdp.erm.__file__).parent.glob("*.py"):
        for node in ast.parse(path.read_text()).body:
            names = [alias.name for alias in getattr(node, "names", [])] + [getattr(node, "module", None) or ""]
            assert not [name for name in names if name.startswith("sklearn")], path
