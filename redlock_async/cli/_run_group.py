"""A command in a process group of its own, and how to stop such a group; this module knows nothing about locks."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress

POLL_INTERVAL = 0.01
"""Seconds between two checks whether a group has ended: other processes reap its members, so no signal tells us."""

KILL_TIMEOUT = 1.0
"""Seconds after SIGKILL in which a group ends. A group that still exists then cannot be killed."""


class Group:
    """A process group. Its members may end at any time, and some may belong to another user."""

    def __init__(self, number: int) -> None:
        self.number = number

    def send(self, number: int) -> None:
        """Send a signal to the group; members of another user do not receive it."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.number, number)

    def terminate(self) -> None:
        """Send SIGTERM, and SIGCONT because a stopped process would not handle it."""
        self.send(signal.SIGTERM)
        self.send(signal.SIGCONT)

    def kill(self) -> None:
        """Send SIGKILL, which also ends stopped processes."""
        self.send(signal.SIGKILL)

    @property
    def exists(self) -> bool:
        """Whether the group has any member, even one that has ended and is not reaped yet."""
        try:
            os.killpg(self.number, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return True


class Child(Group):
    """The command, which leads its process group."""

    def __init__(
        self,
        command: Sequence[str],
        environ: Mapping[str, str],
        *,
        caught: Iterable[int],
        mask: Iterable[int],
        before: Callable[[int], None],
    ) -> None:
        """Start the command, or raise OSError.

        `caught` are the signals that this process handles. The caller must have blocked them, so that none is lost or
        handled by the copy of this process. `mask` is the signal mask for the command. `before` is called with the
        number of the group in the new process, after the group exists and before the command does.
        """

        def prepare() -> None:
            for number in caught:
                signal.signal(number, signal.SIG_DFL)
            signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # so that `before` raises instead of ending the process
            before(os.getpid())
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

        # close_fds=False passes on the files that the caller opened for the command, such as `<(...)` of a shell. Ours
        # are close-on-exec. This process has one thread and no event loop, so running code after fork is safe.
        self._process = subprocess.Popen(  # noqa: S603 - running the user's command is the purpose
            command,
            env=environ,
            close_fds=False,
            process_group=0,
            preexec_fn=prepare,  # noqa: PLW1509 - safe with one thread
        )
        self.status: int | None = None
        """The exit status as a shell reports it; None while the command runs."""
        super().__init__(self._process.pid)

    def poll(self) -> int | None:
        """Update `status`; return the signal that stopped the command, if one did since the last call."""
        if self.status is not None:
            return None
        number, state = os.waitpid(self._process.pid, os.WNOHANG | os.WUNTRACED)
        if not number:
            return None
        if os.WIFSTOPPED(state):
            return os.WSTOPSIG(state)
        self._process.returncode = code = os.waitstatus_to_exitcode(state)
        self.status = code if code >= 0 else 128 - code
        return None
