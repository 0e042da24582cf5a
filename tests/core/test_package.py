"""What the core shows to the rest of the house."""

import importlib
import pkgutil

import jackalope.core


def test_the_core_exports_itself() -> None:
    assert jackalope.core.__all__ == ["Core"]
    assert jackalope.core.Core.__module__ == "jackalope.core.broker"


def test_every_module_of_the_core_is_imported_alone() -> None:
    names = [module.name for module in pkgutil.iter_modules(jackalope.core.__path__)]
    assert "broker" in names
    for name in names:
        assert importlib.import_module(f"jackalope.core.{name}").__doc__
