"""Names of a package that are imported when they are first used."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from bpe_core.wrong_calls import package_error

__all__ = ["load_name"]


def load_name(package: dict[str, Any], modules: Mapping[str, str], name: str) -> Any:
    """Import a name of a package from one of its modules, and keep it in the package.

    Args:
        package: Globals of the package.
        modules: Modules of its names, relative to the package.
        name: The name.

    Raises:
        AttributeError: The package does not have the name.
    """
    if name not in modules:
        raise package_error(package["__name__"], name)
    module = import_module(f"{package['__name__']}.{modules[name]}")
    package[name] = getattr(module, name)
    return package[name]
