"""A command in a process group of its own, and how such a group is stopped; nothing here knows about locks."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress

LOOK = 0.01
"""Seconds between two looks at whether a group is gone: its own processes are reaped by others than us."""

GONE = 1.0
"""Seconds in which a group that got SIGKILL is gone: else it cannot be killed."""


class Group:
    """All processes of that group, which are not ours alone: they may end, or be somebody else's, at any moment."""

    def __init__(self, number: int) -> None:
        self.number = number

    def send(self, number: int) -> None:
        """Send all of them that signal; those that belong to another user do not get it."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.number, number)

    def terminate(self) -> None:
        """Ask them to end. One that is stopped could not hear of it."""
        self.send(signal.SIGTERM)
        self.send(signal.SIGCONT)

    def kill(self) -> None:
        """End them, stopped or not."""
        self.send(signal.SIGKILL)

    @property
    def exists(self) -> bool:
        """Whether any of them is left, be it one that has ended and is not reaped yet."""
        try:
            os.killpg(self.number, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return True


class Child(Group):
    """The command itself, the first of its group."""

    def __init__(
        self,
        command: Sequence[str],
        environ: Mapping[str, str],
        *,
        caught: Iterable[int],
        mask: Iterable[int],
        before: Callable[[int], None],
    ) -> None:
        """Start it, or raise OSError.

        `caught` are the signals that this process handles, `mask` is what the command shall have blocked: they must be
        blocked now, so that none is lost, or taken for ours, on the way. `before` is called in the new process, with
        the number of the group, when there is a group but not yet a command.
        """

        def prepare() -> None:
            for number in caught:
                signal.signal(number, signal.SIG_DFL)
            signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # `before` is to fail instead
            before(os.getpid())
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

        # Files that the caller left open for the command (`<(...)` of a shell, say) are passed on; ours are closed by
        # exec. There is one thread and no loop in this process, so what runs between fork and exec is safe.
        self._process = subprocess.Popen(  # noqa: S603 - running what one is given is what it is for
            command,
            env=environ,
            close_fds=False,
            process_group=0,
            preexec_fn=prepare,  # noqa: PLW1509 - as above
        )
        self.status: int | None = None
        """What a shell would call its exit status, once it has ended."""
        super().__init__(self._process.pid)

    def look(self) -> int | None:
        """See whether it has ended; returns the signal that stopped it, if it was stopped since the last look."""
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
