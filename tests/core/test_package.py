"""What the core shows to the rest of the house."""

import importlib
import pkgutil

import jackalope.core


def test_the_core_exports_itself() -> None:
    assert jackalope.core.__all__ == ["Core"]
    assert jackalope.core.Core.__module__ == "jackalope.core.core"


def test_every_module_of_the_core_is_imported_alone() -> None:
    modules = pkgutil.walk_packages(jackalope.core.__path__, "jackalope.core.")
    names = [module.name for module in modules]
    assert "jackalope.core.tasks.assign" in names
    for name in names:
        assert importlib.import_module(name).__doc__
