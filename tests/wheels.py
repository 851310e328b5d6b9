"""Packages to install without a network."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest


def wheel(folder: Path, name: str, version: str, code: str) -> None:
    """A package of one module."""
    folder.mkdir(exist_ok=True)
    about = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": code,
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: a test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{about}/RECORD": "",
    }
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as packed:
        for file, content in files.items():
            packed.writestr(file, content)


def installers_ask(patch: pytest.MonkeyPatch, links: Path | None = None, index: str = "") -> None:
    """From here on pip and uv know these wheels and no index, or this index alone; whatever this machine says."""
    patch.setenv("PIP_CONFIG_FILE", "/dev/null")
    patch.setenv("UV_NO_CONFIG", "1")
    for name in ("INDEX_URL", "EXTRA_INDEX_URL", "NO_INDEX", "FIND_LINKS", "DEFAULT_INDEX"):
        for tool in ("PIP", "UV"):
            patch.delenv(f"{tool}_{name}", raising=False)
    for tool in ("PIP", "UV"):
        if links:
            patch.setenv(f"{tool}_FIND_LINKS", str(links))
            patch.setenv(f"{tool}_NO_INDEX", "1")
        if index:
            patch.setenv(f"{tool}_INDEX_URL", index)
