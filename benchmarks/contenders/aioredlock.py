"""aioredlock 0.7.3, in an environment of its own, for its aioredis 1 is as old as it is."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from . import TTL, Missing

PACKAGES = ("aioredlock==0.7.3", "aioredis==1.3.1", "setuptools<81")
"""setuptools: for distutils, which Python 3.12 no longer has."""

PATIENCE = 120.0
"""Seconds an installation may take."""


class Peer:
    """As its README has it: a lock manager with its defaults, but for retries without end."""

    async def open(self, urls: Sequence[str]) -> None:
        library = import_module("aioredlock")  # only there in its own environment
        self._manager = library.Aioredlock(list(urls), retry_count=1_000_000, internal_lock_timeout=TTL)

    async def close(self) -> None:
        await self._manager.destroy()

    def acquire(self, name: str) -> Awaitable[Any]:
        return self._manager.lock(name)  # type: ignore[no-any-return] # untyped

    def release(self, lock: Any) -> Awaitable[object]:
        return self._manager.unlock(lock)  # type: ignore[no-any-return] # untyped

    def block(self, name: str) -> AbstractAsyncContextManager[object]:
        @asynccontextmanager
        async def entered() -> AsyncGenerator[object]:
            async with await self._manager.lock(name) as lock:
                yield lock

        return entered()


class Environment:
    """The interpreter it runs in, made when it is first asked for."""

    def python(self, *, install: bool) -> str:
        for folder in self._folders():
            if (python := folder / "bin" / "python").exists() and (folder / "complete").exists():
                return str(python)
        if not install:
            raise Missing("not installed, and --no-install was given")
        return self._install()

    def _folders(self) -> list[Path]:
        name = f"aioredlock-0.7.3-py{sys.version_info.major}.{sys.version_info.minor}"
        return [
            Path(__file__).resolve().parents[2] / ".cache" / name,
            Path(tempfile.gettempdir()) / f"redlock-benchmarks-{os.getuid()}" / name,
        ]

    def _install(self) -> str:
        why = "no folder to install it into can be written"
        for folder in self._folders():
            try:
                folder.mkdir(parents=True, exist_ok=True)
                (folder.parent / ".gitignore").write_text("*\n", "utf-8")
            except OSError:
                continue
            print(f"installing aioredlock into {folder} ...", file=sys.stderr)
            try:
                self._run(sys.executable, "-m", "venv", "--clear", str(folder))
                self._run(str(folder / "bin/python"), "-m", "pip", "install", "--disable-pip-version-check", *PACKAGES)
                self._run(str(folder / "bin/python"), "-W", "ignore", "-c", "import aioredlock")
            except (OSError, subprocess.SubprocessError) as exc:
                why = f"cannot be installed: {_last_line(exc)}"
                shutil.rmtree(folder, ignore_errors=True)
                continue
            (folder / "complete").touch()
            return str(folder / "bin/python")
        raise Missing(why)

    @staticmethod
    def _run(*command: str) -> None:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=PATIENCE)


def _last_line(exc: Exception) -> str:
    said = str(getattr(exc, "stderr", None) or exc).strip().splitlines()
    return said[-1] if said else type(exc).__name__
