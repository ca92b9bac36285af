"""Whence the masters come that are measured on, and what is said when there are none."""

import pytest

from benchmarks import clusters
from benchmarks.clusters import NoCluster, cluster

# It writes down what it is asked, and fails where the file `fails` says so. Its containers answer while `up` is there.
DOCKER = """#!/bin/sh
cd "$(dirname "$0")"
words="$*"
words="${words#compose --file */docker-compose.yml }"
echo "$words" >> asked
if [ -e fails ] && [ "$words" = "$(head -n 1 fails)" ]; then
    tail -n 1 fails >&2
    exit 1
fi
case "$words" in
    "ps --quiet") [ ! -e ran-before ] || echo 0123456789ab ;;
    "up --detach --wait") [ -e stillborn ] || touch up ;;
    down) rm -f up ;;
esac
"""
START = ["info", "compose version", "ps --quiet", "up --detach --wait"]


class Engine:
    """A docker of the test's own, the only program on PATH but for the shell's."""

    def __init__(self, folder):
        self._folder = folder

    def __truediv__(self, name):
        return self._folder / name

    def fails(self, words, saying):
        """From now on, at that command."""
        (self / "fails").write_text(f"{words}\n{saying}\n", "utf-8")

    @property
    def asked(self):
        """What it has been asked so far."""
        return (self / "asked").read_text("utf-8").splitlines() if (self / "asked").exists() else []

    @property
    def runs(self):
        """Whether its containers do."""
        return (self / "up").exists()


@pytest.fixture
def engine(tmp_path, monkeypatch):
    """An engine whose containers do not run yet."""
    (tmp_path / "docker").write_text(DOCKER, "utf-8")
    (tmp_path / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    engine = Engine(tmp_path)
    monkeypatch.setattr(clusters, "_answers", lambda _: engine.runs)
    return engine


def test_compose_is_started_and_ended(engine, capsys):
    """As it was found."""
    with cluster("compose") as urls:
        assert urls == [f"redis://127.0.0.1:{port}" for port in range(6391, 6396)]
        assert engine.runs
        assert engine.asked == START
    assert engine.asked == [*START, "down"]
    assert not engine.runs
    assert "none of them ran before" in capsys.readouterr().err


def test_compose_that_runs_is_used_as_it_is(engine):
    """Nobody's docker is asked: the ports may be those of something else that speaks Redis."""
    (engine / "up").touch()
    with cluster("compose") as urls:
        assert len(urls) == 5
    assert engine.asked == []
    assert engine.runs


def test_compose_is_left_running_if_a_part_of_it_ran(engine, capsys):
    """It is somebody's."""
    (engine / "ran-before").touch()
    with cluster("compose"):
        pass
    assert engine.asked == START
    assert engine.runs
    assert "left running" in capsys.readouterr().err


@pytest.mark.parametrize("error", [KeyboardInterrupt, NoCluster])
def test_compose_is_ended_after_an_error(engine, error):
    """Ctrl-C above all."""
    with pytest.raises(error), cluster("compose"):
        raise error
    assert not engine.runs
    assert engine.asked[-1] == "down"


def test_no_docker(engine):
    """What is missing, and what to do without."""
    (engine / "docker").unlink()
    with pytest.raises(NoCluster, match=r"6391.*no docker.*--cluster embedded"), cluster("compose"):
        pass


def test_no_engine(engine):
    """The usual trouble: it is installed and does not run."""
    engine.fails("info", "Cannot connect to the Docker daemon")
    with pytest.raises(NoCluster, match=r"start it.*--cluster embedded.*Cannot connect to"), cluster("compose"):
        pass
    assert engine.asked == ["info"]


def test_an_engine_that_hangs(engine, monkeypatch):
    """It is not waited for."""
    (engine / "docker").write_text("#!/bin/sh\nexec sleep 30\n", "utf-8")
    monkeypatch.setattr(clusters, "ENGINE_PATIENCE", 0.1)
    with pytest.raises(NoCluster, match=r"start it.*nothing within 0.1 s"), cluster("compose"):
        pass


def test_no_compose(engine):
    """An old docker."""
    engine.fails("compose version", "docker: 'compose' is not a docker command.")
    with pytest.raises(NoCluster, match=r"no compose: install its compose plugin"), cluster("compose"):
        pass


def test_an_image_that_cannot_be_had(engine):
    """Docker's own words, and nothing left behind."""
    engine.fails("up --detach --wait", "pull access denied")
    with (
        pytest.raises(NoCluster, match=r"`docker compose up --detach --wait` failed: pull access denied"),
        cluster("compose"),
    ):
        pass
    assert engine.asked[-1] == "down"


def test_containers_that_do_not_answer(engine):
    """They run, and their ports are not there."""
    (engine / "stillborn").touch()
    with pytest.raises(NoCluster, match=r"containers run, but nothing answers at redis.*6391"), cluster("compose"):
        pass
    assert engine.asked[-1] == "down"


def test_the_ports_are_those_of_the_compose_file():
    """It is written there, not here."""
    text = clusters.COMPOSE_FILE.read_text("utf-8")
    for url in clusters.COMPOSE:
        assert f'"{url.removeprefix("redis://")}:6379"' in text


def test_urls_that_answer_are_taken(nodes):
    """With the blanks that a shell's quotes leave."""
    with cluster(" , ".join(nodes)) as urls:
        assert urls == nodes


@pytest.mark.parametrize("choice", ["redis://127.0.0.1:1", "127.0.0.1:1", "redis://127.0.0.1:none", ",", "compos"])
def test_what_does_not_answer_is_named(choice):
    """And what could be given instead."""
    with pytest.raises(NoCluster, match="embedded, compose, or URLs"), cluster(choice):
        pass


def test_embedded_needs_a_server(monkeypatch, tmp_path):
    """Its own message says how to get one."""
    monkeypatch.setenv("REDLOCK_SERVER", str(tmp_path / "nothing"))
    with pytest.raises(NoCluster, match="REDLOCK_SERVER"), cluster("embedded"):
        pass


@pytest.mark.usefixtures("embedded")
def test_embedded_masters_end_with_the_run():
    """None is left."""
    with cluster("embedded") as urls:
        assert all(map(clusters._answers, urls))
    assert not any(map(clusters._answers, urls))
