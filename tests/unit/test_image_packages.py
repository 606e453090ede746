"""What runs in the image of operator and gateway imports nothing that the image does not hold."""

import re
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOCK = ROOT / "requirements/operator.lock"

IMPORTS = """
import importlib, pkgutil, sys
from importlib.abc import MetaPathFinder

absent, package = set(sys.argv[1].split(",")), sys.argv[2]

class Absent(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in absent:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
module = importlib.import_module(package)
for each in pkgutil.walk_packages(getattr(module, "__path__", []), package + "."):
    if not each.name.endswith(".__main__"):
        importlib.import_module(each.name)
if package == "spatialstream.cli.gateway":
    from spatialstream import cli
    cli.parser()
"""
"""Imports a package and all below it as if some top-level packages were not installed."""


def absent() -> set[str]:
    """The top-level packages of what is installed here and is not in the image."""
    held = {line.partition("==")[0] for line in LOCK.read_text("utf-8").splitlines() if "==" in line}
    held |= {"spatialstream"}
    return {
        package
        for package, distributions in packages_distributions().items()
        if not {each.lower().replace("_", "-") for each in distributions} & held
    }


def imported(package: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", IMPORTS, ",".join(sorted(absent())), package],
        capture_output=True,
        text=True,
        check=False,
    )


def test_spark_is_not_in_it() -> None:
    assert "pyspark" in absent()
    assert "ModuleNotFoundError" in imported("spatialstream.spark.session").stderr


@pytest.mark.parametrize(
    "package",
    ["spatialstream.cli.gateway", "spatialstream.gateway", "spatialstream.client", "spatialstream_operator"],
)
def test_what_runs_in_it_imports_what_it_holds(package: str) -> None:
    found = imported(package)

    assert found.returncode == 0, found.stderr


def test_both_images_compile_kernels_in_one_stage() -> None:
    """A builder with a cache of layers then compiles them once, for it knows the stage by its text."""
    stages = []
    for image in ("operator", "spark"):
        text = (ROOT / "images" / image / "Dockerfile").read_text("utf-8")
        (arguments,) = re.findall(r"^ARG CPU=.*\nARG CPU_FEATURES=.*\n", text, re.MULTILINE)
        (stage,) = re.findall(r"^FROM \S+ AS kernels\n(?:.+\n)*", text, re.MULTILINE)
        stages.append(arguments + stage)
    assert stages[0] == stages[1]
    assert "spatialstream.kernels" in stages[0]
