"""The examples in docs/shells.md are executed as a shell, make, systemd and the runners of CI services execute them."""

import configparser
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

pytestmark = [pytest.mark.thorough, pytest.mark.redis]

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "shells.md").read_text("utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
PATIENCE = 120
GITHUB = "/bin/bash --noprofile --norc -eo pipefail -c"
"""How a runner of GitHub Actions runs a step; GitLab's has the same options."""


def block(language, text):
    """The one block in that language which has that text."""
    (found,) = [each for tongue, each in BLOCKS if tongue == language and text in each]
    return found


@pytest.fixture
def app(tmp_path):
    """A folder with the program and the scripts of the examples, which write down what they were called with."""
    folder = tmp_path / "app"
    bin_ = folder / ".venv" / "bin"
    bin_.mkdir(parents=True)
    python = shlex.quote(sys.executable)
    executable(bin_ / "redlock-async", f'PYTHONPATH={shlex.quote(str(ROOT))} exec {python} -m redlock_async "$@"')
    executable(bin_ / "pip", "exit 0")
    for script in ("migrate", "deploy", "archive", "maintain"):
        executable(folder / f"{script}.sh", f'echo {script} "$@" >> {shlex.quote(str(tmp_path / "ran"))}')
    return folder


def executable(path, lines):
    """A script."""
    path.write_text(f"#!/bin/sh\n{lines}\n")
    path.chmod(0o700)


def runs(app):
    """What the scripts have written down, in order."""
    file = app.parent / "ran"
    return file.read_text().splitlines() if file.exists() else []


def executed(app, urls, command, **more):
    """In the folder, with no other environment."""
    environ = {"PATH": f"{app}/.venv/bin:/usr/bin:/bin", "REDLOCK_NODES": ",".join(urls), **more}
    done = subprocess.run(
        command, env=environ, capture_output=True, text=True, check=False, timeout=PATIENCE, cwd=app,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert "Traceback" not in done.stderr, done.stderr
    return done


def is_free(app, urls, name):
    """Whether the nodes know nothing of the name."""
    return executed(app, urls, ["redlock-async", "inspect", name]).returncode == 1


def taken(app, urls, name):
    """Have another client hold the name."""
    assert executed(app, urls, ["redlock-async", "acquire", name, "--ttl", "1m", "--wait", "0"]).returncode == 0


# -- shells ------------------------------------------------------------------------------------------------------------


def test_two_steps_of_a_deployment(nodes, app):
    """The first example; and the second step does not run if the lease was lost in the first one."""
    text = block("sh", "./migrate.sh")
    assert executed(app, nodes, ["/bin/sh", "-c", text]).returncode == 0
    assert runs(app) == ["migrate", "deploy"]
    assert is_free(app, nodes, "deploy")
    executable(app / "migrate.sh", "redlock-async release deploy --force --yes")
    assert executed(app, nodes, ["/bin/sh", "-c", text]).returncode == 70
    assert runs(app) == ["migrate", "deploy"]


def test_a_script_with_a_loop(nodes, app):
    """It does all of it, or nothing if another machine does; and leaves no ticket."""
    text = block("sh", "mktemp")
    folder = app / "tmp"
    folder.mkdir()
    assert executed(app, nodes, ["/bin/sh", "-c", text], TMPDIR=str(folder)).returncode == 0
    assert runs(app) == ["archive orders", "archive customers", "archive invoices"]
    assert is_free(app, nodes, "nightly")
    taken(app, nodes, "nightly")
    assert executed(app, nodes, ["/bin/sh", "-c", text], TMPDIR=str(folder)).returncode == 0
    assert len(runs(app)) == 3
    assert list(folder.iterdir()) == []


def test_variables_instead_of_a_file(nodes, app):
    """With the fencing token; and the script ends if the lock is held."""
    text = block("sh", "eval")
    assert executed(app, nodes, ["/bin/sh", "-c", text]).returncode == 0
    (line,) = runs(app)
    assert re.fullmatch(r"archive orders \d{16}", line)
    taken(app, nodes, "nightly")
    assert executed(app, nodes, ["/bin/sh", "-c", text], REDLOCK_WAIT="0").returncode == 75
    assert len(runs(app)) == 1


def test_up_runs_a_command(app):
    """With nodes of its own."""
    executable(app / ".venv" / "bin" / "pytest", 'redlock-async run x -- sh -c "echo tested"')
    done = executed(app, [], shlex.split(block("sh", "up -- pytest")))
    assert (done.returncode, done.stdout) == (0, "tested\n")


# -- CI services -------------------------------------------------------------------------------------------------------


def github(app, urls, temp):
    """Execute the job as a runner does: after a failure only what is to run always. Returns the statuses."""
    job = yaml.safe_load(block("yaml", "runs-on"))["jobs"]["deploy"]
    assert set(job["env"]) == {"REDLOCK_NODES"}
    statuses = []
    for step in job["steps"]:
        if "run" in step and (not any(statuses) or step.get("if") == "always()"):
            command = step["run"].replace("--wait 10m", "--wait 0")
            done = executed(app, urls, [*shlex.split(GITHUB), command], RUNNER_TEMP=str(temp))
            statuses.append(done.returncode)
    return statuses


def test_github_actions(nodes, app, tmp_path):
    """All steps; a failure in the middle, after which the lock is released; and a lock that another client holds."""
    assert github(app, nodes, tmp_path) == [0] * 6
    assert runs(app) == ["migrate", "deploy"]
    assert is_free(app, nodes, "deploy")
    executable(app / "migrate.sh", "exit 3")
    assert github(app, nodes, tmp_path) == [0, 0, 3, 0]
    assert is_free(app, nodes, "deploy")
    taken(app, nodes, "deploy")
    assert github(app, nodes, tmp_path) == [0, 75, 0]
    assert not is_free(app, nodes, "deploy")
    assert len(runs(app)) == 2


def gitlab(app, urls):
    """Execute the job: `before_script` and `script` in one shell, and `after_script` in another one, always."""
    job = yaml.safe_load(block("yaml", "after_script"))["deploy"]
    before = "\n".join([*job["before_script"], *job["script"]]).replace("--wait 10m", "--wait 0")
    ticket = job["variables"]["TICKET"].replace("$CI_PROJECT_DIR", str(app))
    Path(ticket).parent.mkdir(exist_ok=True)
    return [
        executed(app, urls, [*shlex.split(GITHUB), script], TICKET=ticket).returncode
        for script in (before, "\n".join(job["after_script"]))
    ]


def test_gitlab_ci(nodes, app):
    """As above."""
    assert gitlab(app, nodes) == [0, 0]
    assert runs(app) == ["migrate", "deploy"]
    executable(app / "migrate.sh", "exit 3")
    assert gitlab(app, nodes) == [3, 0]
    assert is_free(app, nodes, "deploy")
    taken(app, nodes, "deploy")
    assert gitlab(app, nodes) == [75, 0]
    assert not is_free(app, nodes, "deploy")


# -- make, systemd -----------------------------------------------------------------------------------------------------


def test_makefile(nodes, app):
    """Three targets that are made at different times."""
    (app / "Makefile").write_text(block("make", ".PHONY"))

    def make(target):
        return executed(app, nodes, ["make", target]).returncode

    assert make("deploy") != 0
    assert make("lock") == 0
    assert (app / ".deploy-ticket").stat().st_mode & 0o777 == 0o600
    assert make("deploy") == 0
    assert make("unlock") == 0
    assert make("deploy") != 0
    assert runs(app) == ["deploy"]
    assert is_free(app, nodes, "deploy")


def systemd(app, urls, runtime):
    """Start the unit and stop it; a command after a failed one does not run, except in ExecStopPost."""
    parser = configparser.RawConfigParser(strict=True)
    parser.optionxform = str
    parser.read_string(block("ini", "ExecStopPost"))
    service = parser["Service"]
    (runtime / service["RuntimeDirectory"]).mkdir(exist_ok=True)
    statuses = []
    for key in ("ExecStartPre", "ExecStart", "ExecStopPost"):
        line = service[key].replace("%t", str(runtime)).replace("/srv/app", str(app))
        if not any(statuses) or key == "ExecStopPost":
            statuses.append(executed(app, urls, shlex.split(line.removeprefix("-"))).returncode)
    return statuses


def test_systemd(nodes, app, tmp_path):
    """One machine does it; the failure of ExecStopPost after a lock that was not acquired is ignored by its `-`."""
    assert systemd(app, nodes, tmp_path) == [0, 0, 0]
    executable(app / "maintain.sh", "exit 3")
    assert systemd(app, nodes, tmp_path) == [0, 3, 0]
    assert is_free(app, nodes, "maintenance")
    taken(app, nodes, "maintenance")
    assert systemd(app, nodes, tmp_path) == [75, 2]
    assert not is_free(app, nodes, "maintenance")
    assert runs(app) == ["maintain"]
