"""Make the environment of the other Redlock clients, if it is not there yet, and print how a worker starts in it.

Asked for `python` or `node`; each is made once, under a lock, and again when what belongs in it has changed.
"""

import fcntl
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
FOLDER = HERE.parents[1] / ".venv-interop"
PATIENCE = 120.0
"""Seconds one installation may take."""

MISSING = 3
"""Exit status when a program is missing that no package of ours can bring."""


def python():
    """A virtual environment with aioredlock, pottery and redlock-py."""
    interpreter = FOLDER / "python" / "bin" / "python"
    listed = HERE / "requirements.txt"

    def install():
        run(sys.executable, "-m", "venv", "--clear", str(FOLDER / "python"))
        pip = (str(interpreter), "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        run(*pip, "--no-deps", "--no-compile", "--requirement", str(listed))  # all are listed
        run(str(interpreter), "-W", "ignore", "-c", "import aioredlock, pottery, redlock")

    made("python", f"{sys.version}\n{listed.read_text('utf-8')}", install)
    return {"command": [str(interpreter), "-W", "ignore"], "environment": {}}


def node():
    """A folder of packages for node: redlock, and the client that it needs."""
    interpreter, npm = found("node"), found("npm")
    folder = FOLDER / "node"
    listed = HERE / "package.json"

    def install():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        shutil.copy(listed, folder)
        quiet = ("--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts", "--loglevel=error")
        # Whether there is a registry for node's packages is the machine's business, as whether there is node.
        patience = ("--fetch-timeout=10000", "--fetch-retries=0")
        command = [npm, "install", "--prefix", str(folder), "--cache", str(FOLDER / "npm-cache"), *quiet, *patience]
        try:
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=25)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            print(f"npm could not install node-redlock: {type(error).__name__}", file=sys.stderr)
            sys.exit(MISSING)
        run(interpreter, "-e", "require('redlock'), require('ioredis')", cwd=folder)

    made("node", listed.read_text("utf-8"), install)
    return {"command": [interpreter], "environment": {"NODE_PATH": str(folder / "node_modules")}}


def made(name, wanted, install):
    """Install it unless it is there as wanted. The stamp is written last: what was interrupted is done again."""
    FOLDER.mkdir(exist_ok=True)
    stamp = FOLDER / f"stamp-{name}"
    with (FOLDER / f"lock-{name}").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if stamp.exists() and stamp.read_text("utf-8") == wanted:
            return
        stamp.unlink(missing_ok=True)
        install()
        stamp.write_text(wanted, "utf-8")


def found(program):
    """Where it is; the end of this one if it is not."""
    path = shutil.which(program)
    if path is None:
        print(f"{program} is not installed", file=sys.stderr)
        sys.exit(MISSING)
    return path


def run(*command, cwd=None):
    """Run it without a word; with its last ones if it fails."""
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=PATIENCE, cwd=cwd)
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()[-3:]
        sys.exit(f"{os.path.basename(command[0])} failed: {' '.join(said)}")  # noqa: PTH119 - a program, not a path


if __name__ == "__main__":
    print(json.dumps({"python": python, "node": node}[sys.argv[1]]()))
