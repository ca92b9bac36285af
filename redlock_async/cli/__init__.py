"""The command line: finds the command and turns what ends it into an exit status; it does nothing a command should."""

# ruff: noqa: T201 - printing is what it is for

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable, Container, Sequence
from importlib import import_module
from typing import NoReturn, Protocol, cast

import redlock_async

from ._passwords import OPTION, conceal, masked

PROG = "redlock-async"

# Everything in this folder says `redlock_async.Lease` and not `from redlock_async import Lease`: nothing of the library
# is then imported before it is used, and --help, usage errors and completions are there at once.

# A command is a line here and a file of that name beside this one, imported only when it is the one that is asked for.
COMMANDS = {
    "run": "run a command under a lock",
    "locks": "list what is locked, by whom, and on how many masters",
    "inspect": "tell who holds a name, on which masters, and who waits for it",
    "release": "free a name by force",
    "permits": "tell how many permits a semaphore has, or change it",
    "doctor": "check whether this cluster is fit for locks, and say what to do",
    "status": "show the masters, once or live",
    "completion": "print the completions for a shell",
    "up": "run a local cluster until Ctrl-C, and print its REDLOCK_NODES",
    "bench": "measure what locks cost on this cluster",
    "demo": "watch processes contend for one lock while masters are killed and frozen",
}


class Command(Protocol):
    """What the file of a command has."""

    configure: Callable[[argparse.ArgumentParser], None]
    """Adds its arguments."""
    run: Callable[[argparse.Namespace], int]
    """Does it, and returns the exit status."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that the arguments name; returns the exit status."""
    try:
        status = _done(sys.argv[1:] if argv is None else list(argv))
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except BrokenPipeError:
        return _nobody_reads()
    except Exception as error:
        status = _expected(error)
        if not status:
            raise
        from ._words import in_short, say  # noqa: PLC0415 - only when it failed

        say(f"{PROG}: {in_short(error)}")
    return status


def _done(words: list[str]) -> int:
    """Do what they say; what was printed has then left this process, or it is known that nobody reads it."""
    try:
        conceal(words)
        if not words:
            parser(()).print_help(sys.stderr)
            return 2
        arguments = _parsed(words)
        status: int = arguments.run(arguments)
        return status
    finally:
        if sys.stdout is not None:  # closed by `>&-`
            sys.stdout.flush()


class Parser(argparse.ArgumentParser):
    """One whose messages quote no password."""

    def error(self, message: str) -> NoReturn:
        """End with 2."""
        super().error(masked(message))


class Version(argparse.Action):
    """Tells it, when it is asked for and not before."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        """End with 0."""
        print(PROG, redlock_async.__version__)
        parser.exit()


def _parsed(words: list[str]) -> argparse.Namespace:
    wanted, command_line = _command(words), list[str]()
    if wanted == ["run"] and "--" in words:
        # What follows is somebody else's, `--` included, of which argparse before Python 3.13 drops one.
        at = words.index("--")
        words, command_line = words[:at], words[at + 1 :]
    program = parser(wanted)
    for word in wanted:
        if word not in COMMANDS:
            program.error(_unknown(word))
    arguments, others = program.parse_known_args(words, argparse.Namespace(command=command_line))
    if others:
        hint = "; what is to be run stands behind `--`" if wanted == ["run"] and not command_line else ""
        arguments.parser.error(f"unrecognized arguments: {' '.join(others)}{hint}")
    if "nodes" in arguments and not arguments.takes_nodes:
        arguments.parser.error("--nodes in front of the command gives the masters, and this one is about none")
    return arguments


def _command(words: Sequence[str]) -> list[str]:
    """The one that they name, if they do; in front of it stands what is the same for all of them."""
    is_value = False
    for word in words:
        if not is_value and not word.startswith("-"):
            return [word]
        is_value = not is_value and OPTION.fullmatch(word) is not None
    return []


def _unknown(word: str) -> str:
    """That there is no such command, and which one may have been meant."""
    from difflib import get_close_matches  # noqa: PLC0415 - only when it is needed

    near = get_close_matches(word, COMMANDS, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(COMMANDS)}"
    return f"there is no command {word!r}: {hint}"


def parser(wanted: Container[str]) -> argparse.ArgumentParser:
    """The program's arguments, with those of the wanted commands."""
    program = Parser(prog=PROG, description="Redlock over N independent Redis or Valkey masters.")
    program.add_argument("--version", action=Version, nargs=0, help="show which version this is, and exit")
    add_nodes(program)
    program.set_defaults(takes_nodes=False)  # unless the command does
    commands = program.add_subparsers(metavar="COMMAND", required=True)
    for name, purpose in COMMANDS.items():
        subparser = commands.add_parser(name, help=purpose, description=f"{purpose[0].upper()}{purpose[1:]}.")
        if name in wanted:
            command = cast("Command", import_module(f".{name}", __name__))
            command.configure(subparser)
            subparser.set_defaults(run=command.run, parser=subparser)
    return program


def add_nodes(parser: argparse.ArgumentParser) -> None:
    """Let the masters be given as an argument, of the program or of a command: those of the command come first."""
    parser.set_defaults(takes_nodes=True)
    parser.add_argument(
        "--nodes",
        type=_urls,
        action="append",
        default=argparse.SUPPRESS,  # None would take the place of what was given in front of the command
        metavar="URL,...",
        help="the masters, instead of those in REDLOCK_NODES; @FILE reads them from a file, one a line",
    )


def _urls(text: str) -> str:
    from ._nodes import urls  # noqa: PLC0415 - only when they are given

    return urls(text)


def positive(text: str) -> int:
    """A whole number from 1 on, as an argument."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 on, not {text!r}")
    return int(text)


def _expected(error: Exception) -> int:
    """The exit status of an error whose message says all there is to say; 0 for a bug."""
    from redlock_async.testing import LocalServerError  # noqa: PLC0415 - only when it failed

    from ._nodes import NO_QUORUM  # noqa: PLC0415 - as above

    if isinstance(error, redlock_async.ConfigurationError):
        return 2
    if isinstance(error, redlock_async.QuorumUnavailable):
        return NO_QUORUM
    return 1 if isinstance(error, redlock_async.RedlockError | LocalServerError) else 0


def _nobody_reads() -> int:
    """End as SIGPIPE would have ended us, and let nothing fail when the interpreter flushes stdout."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 128 + signal.SIGPIPE
