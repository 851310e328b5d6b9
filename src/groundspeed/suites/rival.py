"""Libraries that do what our kernels do: how each is found, and how it is named in a record."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from groundspeed.case import Case

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Rival:
    """A rival library; its name is that of its contender."""

    name: str
    package: str
    """The name that a user would look for."""
    marker: str
    """The module whose presence shows that the library is installed."""
    distributions: tuple[str, ...]
    """Its own distribution first, then those that its kernels come from or are compiled by."""
    build: Callable[[Case], Callable[..., Tensor]]
    supports: Callable[[Case, str], str | None]

    def missing(self) -> str | None:
        """Return why the library cannot be used here, or None."""
        try:
            found = importlib.util.find_spec(self.marker) is not None
        except ModuleNotFoundError:
            found = False
        except ImportError as error:  # the package around the marker exists but does not load
            return f"{self.package} cannot be imported: {error}"
        return None if found else f"{self.package} is not installed"

    def version(self) -> str:
        """Return names and versions of the distributions, without importing anything."""
        versions = {name: _version(name) for name in self.distributions}
        own = self.distributions[0]
        if versions[own] is None:  # on the path, but never installed
            versions[own] = "of unknown version"
        return ", ".join(f"{name} {version}" for name, version in versions.items() if version is not None)


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
