"""docker-compose.yml keeps its promises; only the file is read."""

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text("utf-8"))
SERVICES = COMPOSE["services"]
DURABLE = {name: service for name, service in SERVICES.items() if "profiles" not in service}
VOLATILE = {name: service for name, service in SERVICES.items() if service.get("profiles") == ["volatile"]}


def options_of(service):
    """The server's options as a mapping."""
    words = service["command"]
    return dict(zip(words[::2], words[1::2], strict=True))


def volumes_of(service):
    """Where each volume or file of the host is mounted: target -> source."""
    return {volume.split(":")[1]: volume.split(":")[0] for volume in service["volumes"]}


def test_five_durable_nodes_start_by_default_and_five_volatile_ones_by_profile():
    """A plain `docker compose up` starts the durable five on 6391 to 6395; the volatile five are on 6491 to 6495."""
    assert [service["ports"] for service in DURABLE.values()] == [[f"127.0.0.1:{6390 + i}:6379"] for i in range(1, 6)]
    assert [service["ports"] for service in VOLATILE.values()] == [[f"127.0.0.1:{6490 + i}:6379"] for i in range(1, 6)]
    assert len(SERVICES) == 10


def test_durable_nodes_write_to_disk_before_they_reply():
    """Persistence is on with fsync at each write, and nothing is evicted."""
    for service in DURABLE.values():
        options = options_of(service)
        assert options["--appendonly"] == "yes"
        assert options["--appendfsync"] == "always"
        assert options["--maxmemory-policy"] == "noeviction"


def test_volatile_nodes_store_nothing():
    """They have neither an append-only file, nor snapshots, nor a volume for data."""
    for service in VOLATILE.values():
        options = options_of(service)
        assert options["--appendonly"] == "no"
        assert options["--save"] == ""
        assert options["--maxmemory-policy"] == "noeviction"
        assert set(volumes_of(service)) == {"/redlock/entrypoint.sh"}


def test_nodes_are_independent():
    """None replicates another, and no two share data or a mark."""
    for service in SERVICES.values():
        assert "--replicaof" not in service["command"]
    data = [volumes_of(service)["/data"] for service in DURABLE.values()]
    marks = [service["environment"]["REDLOCK_MARK"] for service in DURABLE.values()]
    assert len(set(data)) == len(set(marks)) == 5
    assert set(COMPOSE["volumes"]) == {*data, "marks"}


def test_the_mark_outlives_the_data():
    """The mark "ran before" lies in another volume than the data it tells the loss of."""
    for service in DURABLE.values():
        mounts = volumes_of(service)
        mark_folder = str(Path(service["environment"]["REDLOCK_MARK"]).parent)
        assert mounts[mark_folder] == "marks" != mounts["/data"]


@pytest.mark.parametrize("name", SERVICES)
def test_every_service_has_image_restart_policy_delay_and_entrypoint(name):
    """Image and start delay come from the environment, with defaults; a crashed master comes back by itself."""
    service = SERVICES[name]
    assert service["image"] == "${REDLOCK_IMAGE:-redis:8-alpine}"
    assert service["restart"] == "unless-stopped"
    assert service["entrypoint"] == ["sh", "/redlock/entrypoint.sh"]
    assert volumes_of(service)["/redlock/entrypoint.sh"] == "./docker/entrypoint.sh"
    assert service["environment"]["REDLOCK_RESTART_DELAY"] == "${REDLOCK_RESTART_DELAY:-60}"
    assert (ROOT / "docker/entrypoint.sh").is_file()


@pytest.mark.parametrize("name", SERVICES)
def test_a_delayed_start_is_not_unhealthy(name):
    """The time in which a failing check does not count is as long as the start delay, so `up --wait` waits."""
    check = SERVICES[name]["healthcheck"]
    assert check["start_period"] == "${REDLOCK_RESTART_DELAY:-60}s"
    assert check["retries"] >= 5


@pytest.mark.parametrize("client", ["valkey-cli", "redis-cli"])
@pytest.mark.parametrize(("answer", "healthy"), [("PONG", True), ("LOADING loading the dataset in memory", False)])
def test_health_check_asks_with_the_client_of_either_image(tmp_path, client, answer, healthy):
    """It passes on PONG and fails on any other answer, whichever client the image has."""
    (tmp_path / client).write_text(f'#!/bin/sh\n[ "$1" = ping ] && echo "{answer}"\n', "utf-8")
    (tmp_path / client).chmod(0o755)
    (tmp_path / "grep").symlink_to(shutil.which("grep"))
    kind, command = SERVICES["node-1"]["healthcheck"]["test"]
    assert kind == "CMD-SHELL"
    found = subprocess.run(
        ["/bin/sh", "-c", command.replace("$$", "$")],
        env={"PATH": str(tmp_path)},
        check=False,
    )
    assert (found.returncode == 0) is healthy
