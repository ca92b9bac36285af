"""The command line: finds the command, and turns its outcome into an exit status. The work is done in the commands."""

# ruff: noqa: T201 - a command line prints

from __future__ import annotations

import argparse
import math
import os
import signal
import sys
from collections.abc import Callable, Container, Sequence
from importlib import import_module
from typing import NoReturn, Protocol, cast

import redlock_async

from ._passwords import OPTION, conceal, mask, refuse_tickets

PROG = "redlock-async"

# Every module of this folder writes `redlock_async.Lease` instead of `from redlock_async import Lease`. The library is
# then imported only when it is first used, so --help, usage errors and completions are fast.

# Each command is an entry here and a module of the same name beside this one, imported only when the command is used.
COMMANDS = {
    "run": "run a command under a lock",
    "acquire": "take a lock that stays held when this command has ended",
    "renew": "extend the lease that `acquire` took",
    "holds": "say whether that lease is still held, and for how long",
    "locks": "list the locks, with their holders and votes",
    "inspect": "show who holds a name, on which nodes, and who waits for it",
    "release": "release that lease, or force-release a name",
    "permits": "show or change how many permits a semaphore has",
    "nodes": "show which nodes there are, and change that while services run",
    "doctor": "check whether this cluster is fit for locks, and suggest fixes",
    "status": "show the nodes, once or live",
    "completion": "print the completions for a shell",
    "up": "run a local cluster until Ctrl-C, or for a command",
    "bench": "measure the cost of locks on this cluster",
    "demo": "watch processes contend for one lock while nodes are killed and frozen",
}


class Command(Protocol):
    """The module of a command."""

    configure: Callable[[argparse.ArgumentParser], None]
    """Add the command's arguments to the parser."""
    run: Callable[[argparse.Namespace], int]
    """Run the command, and return the exit status."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that the arguments name, and return the exit status."""
    words = sys.argv[1:] if argv is None else list(argv)
    status = 1
    try:
        status = _run(words)
    except SystemExit as usage:
        status = cast("int", usage.code)
        raise
    finally:
        if status and "--export" in words[: words.index("--") if "--" in words else None]:
            # `eval ""` succeeds, and the script would continue without the lock.
            print(f"(exit {status})")
    return status


def _run(words: list[str]) -> int:
    """Run the command, and turn its error into a message and an exit status."""
    try:
        status = _execute(words)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except BrokenPipeError:
        return _end_as_sigpipe_would()
    except Exception as error:
        status = _status_of(error)
        if not status:
            raise
        from ._messages import say, summarize  # noqa: PLC0415 - only needed after a failure

        say(f"{PROG}: {summarize(error)}")
    return status


def _execute(words: list[str]) -> int:
    """Run the command; flush stdout here, so that a closed pipe is noticed before this process ends."""
    try:
        refuse_tickets(words)
        conceal(words)
        if not words:
            parser(()).print_help(sys.stderr)
            return 2
        arguments = _parse(words)
        status: int = arguments.run(arguments)
        return status
    finally:
        if sys.stdout is not None:  # `>&-` closes it
            sys.stdout.flush()


class Parser(argparse.ArgumentParser):
    """A parser whose error messages contain no password."""

    def error(self, message: str) -> NoReturn:
        """Print the message and exit with 2."""
        super().error(mask(message))


class Version(argparse.Action):
    """Print the version. argparse's own action would need it, and thus package metadata, on every start."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        """Print it and exit with 0."""
        print(PROG, redlock_async.__version__)
        parser.exit()


def _parse(words: list[str]) -> argparse.Namespace:
    wanted, command_line = _command(words), list[str]()
    if wanted in (["run"], ["up"]) and "--" in words:
        # The words after the first `--` belong to the user's command, even a further `--`, which argparse would drop
        # before Python 3.13.
        at = words.index("--")
        words, command_line = words[:at], words[at + 1 :]
    program = parser(wanted)
    for word in wanted:
        if word not in COMMANDS:
            program.error(_unknown(word))
    arguments, others = program.parse_known_args(words, argparse.Namespace(command=command_line))
    if "urls" in arguments and not any(word.startswith("-") for word in others):
        # argparse takes the URLs before an option only: `nodes add --no-wait URL`.
        arguments.urls, others = [*arguments.urls, *others], []
    if others:
        hint = "; write `--` before the command to run" if wanted in (["run"], ["up"]) and not command_line else ""
        arguments.parser.error(f"unrecognized arguments: {' '.join(others)}{hint}")
    if "nodes" in arguments and not arguments.takes_nodes:
        arguments.parser.error(
            "--nodes before the command gives the URLs of nodes, which this command does not use; "
            "write options of the command after it"
        )
    return arguments


def _command(words: Sequence[str]) -> list[str]:
    """Return the command among the words, if there is one; only options of the program come before it."""
    is_value = False
    for word in words:
        if not is_value and not word.startswith("-"):
            return [word]
        is_value = not is_value and OPTION.fullmatch(word) is not None
    return []


def _unknown(word: str) -> str:
    """Return the message for an unknown command, with the command that may have been meant."""
    from difflib import get_close_matches  # noqa: PLC0415 - only needed after a failure

    near = get_close_matches(word, COMMANDS, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"the commands are {', '.join(COMMANDS)}"
    return f"unknown command {word!r}: {hint}"


def parser(wanted: Container[str]) -> argparse.ArgumentParser:
    """Return the parser of the program, with the arguments of the wanted commands."""
    program = Parser(prog=PROG, description="Distributed locks (Redlock) on N independent Redis or Valkey nodes.")
    program.add_argument("--version", action=Version, nargs=0, help="print the version and exit")
    add_nodes(program)
    program.set_defaults(takes_nodes=False)  # a command that calls add_nodes overrides this
    commands = program.add_subparsers(metavar="COMMAND", required=True)
    for name, purpose in COMMANDS.items():
        subparser = commands.add_parser(name, help=purpose, description=f"{purpose[0].upper()}{purpose[1:]}.")
        if name in wanted:
            command = cast("Command", import_module(f".{name}", __name__))
            command.configure(subparser)
            subparser.set_defaults(run=command.run, parser=subparser)
    return program


def add_nodes(parser: argparse.ArgumentParser) -> None:
    """Add --nodes to the program or to a command; the command's --nodes overrides the program's."""
    parser.set_defaults(takes_nodes=True)
    parser.add_argument(
        "--nodes",
        type=_urls,
        action="append",
        default=argparse.SUPPRESS,  # a default of None would overwrite a --nodes before the command
        metavar="URL,...",
        help="URLs of the nodes, instead of REDLOCK_NODES; @FILE reads them from a file, one per line",
    )


def _urls(text: str) -> str:
    from ._nodes import read_urls  # noqa: PLC0415 - only needed with --nodes

    return read_urls(text)


UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
"""Seconds of each unit that may stand after a number."""

DURATION = "a duration such as 30, 500ms, 30s, 30m or 2h"


def as_seconds(text: str) -> float:
    """Return a duration in seconds, or NaN, which fails every comparison with a bound."""
    number = text.rstrip("".join(UNITS))
    try:
        return float(number) * UNITS.get(text[len(number) :] or "s", math.nan)
    except ValueError:
        return math.nan


def positive(text: str) -> int:
    """Return an argument as a whole number of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, got {text!r}")
    return int(text)


def _status_of(error: Exception) -> int:
    """Return the exit status for an error whose message suffices for users; 0 for a bug, which needs a traceback."""
    from redlock_async.testing import LocalServerError  # noqa: PLC0415 - only needed after a failure

    from ._lock_options import LOST  # noqa: PLC0415 - only needed after a failure
    from ._nodes import NO_QUORUM  # noqa: PLC0415 - only needed after a failure

    if isinstance(error, redlock_async.ConfigurationError):
        return 2
    if isinstance(error, redlock_async.QuorumUnavailable):
        return NO_QUORUM
    if isinstance(error, redlock_async.LockLost):
        return LOST
    return 1 if isinstance(error, redlock_async.RedlockError | LocalServerError) else 0


def _end_as_sigpipe_would() -> int:
    """Return the exit status of a process that SIGPIPE ended, and keep the interpreter's last flush from failing."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 128 + signal.SIGPIPE
