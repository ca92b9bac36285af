"""The recipes in docs/cli-recipes.md are executed as cron, systemd, a kubelet and a shell would execute them.

The commands on the other pages about the command line are only parsed.
"""

import asyncio
import configparser
import contextlib
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from redlock_async import Redlock

pytestmark = [pytest.mark.thorough, pytest.mark.redis]

ROOT = Path(__file__).resolve().parents[2]
PAGE = "\n".join((ROOT / "docs" / name).read_text("utf-8") for name in ("cli.md", "run.md", "cli-recipes.md"))
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
SHELL = [text for language, text in BLOCKS if language == "sh"]
PROMPTED = [
    line for language, text in BLOCKS if language == "console" for line in re.findall(r"^\$ (.*)", text, re.MULTILINE)
]
APP = "/srv/app"
NAME = "nightly-report"
PATIENCE = 120


def block(language, text):
    """The one block in that language which has that text."""
    (found,) = [each for tongue, each in BLOCKS if tongue == language and text in each]
    return found


@pytest.fixture
def app(tmp_path):
    """A folder with the program and a report that says what it was given, which the recipes call /srv/app."""
    program = tmp_path / ".venv" / "bin" / "redlock-async"
    program.parent.mkdir(parents=True)
    executable(program, f'PYTHONPATH={shlex.quote(str(ROOT))} exec {shlex.quote(sys.executable)} -m redlock_async "$@"')
    executable(tmp_path / "report.sh", 'echo "ran $REDLOCK_NAME for ${1-nothing}" >> "${0%/*}/ran"; echo it was me')
    return tmp_path


def executable(path, lines):
    """A script."""
    path.write_text(f"#!/bin/sh\n{lines}\n")
    path.chmod(0o700)


def runs(app):
    """The lines that the report has written."""
    file = app / "ran"
    return file.read_text().splitlines() if file.exists() else []


def executed(command, environ, **more):
    """With that environment and no other."""
    done = subprocess.run(
        command, env=environ, capture_output=True, text=True, check=False, timeout=PATIENCE,
        stdin=subprocess.DEVNULL, **more,
    )  # fmt: skip
    assert "Traceback" not in done.stderr, done.stderr
    return done


@contextlib.asynccontextmanager
async def held(urls, name):
    """Another machine has it."""
    async with Redlock(urls, owner="another-machine") as redlock, redlock(name):
        yield redlock


# -- shells ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [*SHELL, *PROMPTED])
def test_a_shell_takes_it(text):
    """Every block and every line behind a prompt."""
    done = subprocess.run(["/bin/sh", "-n"], input=text, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_there_are_shell_blocks():
    """The test above is about something."""
    assert len(SHELL) >= 2
    assert len(PROMPTED) >= 8


@pytest.mark.parametrize("text", SHELL)
def test_shellcheck_finds_nothing(text):
    """Unquoted names and the like; skipped where it is not installed."""
    if shutil.which("shellcheck") is None:
        pytest.skip("needs shellcheck")
    command = ["shellcheck", "--shell=sh", "--exclude=SC2015", "-"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


# -- cron --------------------------------------------------------------------------------------------------------------


def crontab(app, urls):
    """The environment and the command of the recipe, as cron(8) takes them from a file in /etc/cron.d."""
    text = block("text", NAME).replace(APP, str(app))
    text, replaced = re.subn(r"^REDLOCK_NODES=.*", f"REDLOCK_NODES={','.join(urls)}", text, flags=re.MULTILINE)
    assert replaced == 1
    *settings, line = text.splitlines()
    environ = {"HOME": "/", "LOGNAME": "app", "SHELL": "/bin/sh", "PATH": "/usr/bin:/bin"}
    environ |= dict(each.split("=", 1) for each in settings)
    command = line.split(maxsplit=6)[6]
    # The first percent sign that is not escaped would end the command, and what follows be its input.
    assert not re.search(r"(?<!\\)%", command)
    return environ, command.replace(r"\%", "%")


def test_cron_runs_it_on_one_machine(nodes, app):
    """Two start at the same minute: the report is made once, for today, and cron has nothing to send by mail."""
    environ, command = crontab(app, nodes)
    done = [executed(["/bin/sh", "-c", command], environ, cwd="/") for _ in range(2)]
    assert [each.returncode for each in done] == [0, 0]
    assert [each.stdout for each in done] == ["it was me\n", ""]
    assert [each.stderr for each in done] == ["", ""]
    (line,) = runs(app)
    assert re.fullmatch(rf"ran {NAME} for \d{{4}}-\d\d-\d\d", line)


# -- systemd -----------------------------------------------------------------------------------------------------------


def unit(suffix):
    """The text of a unit, and its sections."""
    text = block("ini", f"/etc/systemd/system/report.{suffix}")
    parser = configparser.RawConfigParser(strict=True)
    parser.optionxform = str
    parser.read_string(text)
    return text, parser


def test_systemd_runs_it_and_takes_75_for_done(nodes, app):
    """Its ExecStart, with its EnvironmentFile and nothing else."""
    _, service = unit("service")
    command = shlex.split(service["Service"]["ExecStart"].replace(APP, str(app)))
    line = re.search(r"^`/etc/redlock.env` holds the line `(REDLOCK_NODES=)\.\.\.`", PAGE, re.MULTILINE)[1]
    assert service["Service"]["EnvironmentFile"] == "/etc/redlock.env"
    environ = {"PATH": "/usr/local/bin:/usr/bin:/bin", **dict([f"{line}{','.join(nodes)}".split("=", 1)])}
    first, second = (executed(command, environ, cwd="/") for _ in range(2))
    assert (first.returncode, first.stdout, first.stderr) == (0, "it was me\n", "")
    assert (str(second.returncode), second.stdout) == (service["Service"]["SuccessExitStatus"], "")
    assert runs(app) == [f"ran {NAME} for nothing"]


def test_systemd_takes_the_units(app):
    """Both together, by systemd's own check; skipped where it is not installed."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("needs systemd-analyze")
    for suffix in ("service", "timer"):
        (app / f"report.{suffix}").write_text(unit(suffix)[0].replace(APP, str(app)))
    command = [
        "systemd-analyze",
        "verify",
        "--recursive-errors=no",
        "--man=no",
        app / "report.service",
        app / "report.timer",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    assert "report." not in done.stderr
    _, timer = unit("timer")
    command = ["systemd-analyze", "calendar", timer["Timer"]["OnCalendar"]]
    assert "03:00:00" in subprocess.run(command, capture_output=True, text=True, check=True).stdout


# -- Kubernetes --------------------------------------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_a_pod_runs_it_and_ends_with_what_its_policy_is_about(nodes, app):
    """Once for itself, and once while another cluster has it; its own name is what that other one sees."""
    job = yaml.safe_load(block("yaml", "CronJob"))["spec"]["jobTemplate"]["spec"]
    pod = job["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["restartPolicy"] == "Never"  # without it there may be no podFailurePolicy
    given = {
        "REDLOCK_NODES": ",".join(nodes),
        "REDLOCK_OWNER": "nightly-report-29381-x7x2q",
    }
    assert [each["name"] for each in container["env"]] == list(given)
    command = [word.replace(APP, str(app)) for word in container["command"]]
    environ = {"PATH": f"{app}/.venv/bin:/usr/bin:/bin", **given}
    done = await asyncio.to_thread(executed, command, environ, cwd="/")
    assert (done.returncode, done.stdout, done.stderr) == (0, "it was me\n", "")
    (rule,) = job["podFailurePolicy"]["rules"]
    async with held(nodes, NAME):
        done = await asyncio.to_thread(executed, command, environ, cwd="/")
        assert rule["action"] == "FailJob"
        assert rule["onExitCodes"] == {"operator": "In", "values": [done.returncode]}
        assert "another-machine" in done.stderr
    assert len(runs(app)) == 1
    assert int(command[command.index("--ttl") + 1]) / 4 < pod["terminationGracePeriodSeconds"]


# -- deploy script -----------------------------------------------------------------------------------------------------


@pytest.fixture
def deploy(nodes, app):
    """A function that runs the script with that for a rollout; without the ten minutes."""
    text = block("sh", "deploy:shop")
    assert text.count("--wait 600") == 1
    script = app / "deploy.sh"
    script.write_text(text.replace("--wait 600", "--wait 0.2"))

    def run(rollout, urls=nodes):
        executable(app / "rollout.sh", rollout)
        environ = {"PATH": f"{app}/.venv/bin:/usr/bin:/bin", "REDLOCK_NODES": ",".join(urls)}
        return executed(["/bin/sh", script, "v1.2"], environ, cwd=app)

    return run


def test_the_deploy_script_rolls_out(deploy):
    """After the doctor has looked, with a fence, and with the status of the rollout."""
    done = deploy('echo "$1 ${REDLOCK_FENCING_TOKEN:?}"; exit 3')
    assert done.returncode == 3
    assert re.fullmatch(r"v1\.2 \d+\n", done.stdout)
    assert "fit for locks" in done.stderr


@pytest.mark.asyncio
async def test_the_deploy_script_shows_who_is_deploying(nodes, deploy):
    """And does not roll out."""
    async with held(nodes, "deploy:shop"):
        done = await asyncio.to_thread(deploy, "echo rolled out")
    assert (done.returncode, done.stdout) == (75, "")
    assert "another deployment is still running" in done.stderr
    assert "another-machine" in done.stderr.partition("another deployment")[2]


@pytest.mark.asyncio
async def test_the_deploy_script_says_that_it_may_be_half_done(nodes, app, deploy, eventually):
    """When the lock was taken away."""
    async with Redlock(nodes) as redlock:
        deploying = asyncio.create_task(asyncio.to_thread(deploy, "touch begun; sleep 60; echo rolled out"))
        await eventually((app / "begun").exists, 20)
        assert await redlock.force_release("deploy:shop")
        done = await deploying
    assert (done.returncode, done.stdout) == (70, "")
    assert done.stderr.endswith("the lock was lost: the rollout was stopped, and may be half done\n")


def test_the_deploy_script_heeds_the_doctor(nodes, deploy):
    """A server under two names is nothing to rely on: it does not even begin."""
    done = deploy("echo rolled out", [nodes[0], nodes[1], nodes[0].replace("127.0.0.1", "localhost")])
    assert (done.returncode, done.stdout) == (1, "")
    assert re.search(r"unfit for locks \(.*\bindependent\b", done.stderr), done.stderr
