"""`completion`: print shell completions, generated from the arguments of the commands. It contacts no node."""

# ruff: noqa: T201 - a command prints

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

from . import COMMANDS, PROG, parser

SHELLS = ("bash", "zsh", "fish")
FUNCTION = "_" + PROG.replace("-", "_")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.description = "Print the completions for a shell, for its startup file or its completions directory."
    parser.epilog = (
        f'bash: eval "$({PROG} completion bash)" in ~/.bashrc.  '
        f'zsh: eval "$({PROG} completion zsh)" in ~/.zshrc, after compinit.  '
        f"fish: {PROG} completion fish > ~/.config/fish/completions/{PROG}.fish"
    )
    parser.add_argument("shell", choices=SHELLS, help="the shell")


def run(arguments: argparse.Namespace) -> int:
    """Print the completions, and return the exit status."""
    program = parser(COMMANDS)
    commands = [_words(name, subparser) for name, subparser in parsers(program).items()]
    write = {"bash": _bash, "zsh": _zsh, "fish": _fish}[arguments.shell]
    print("\n".join(write(_words(PROG, program).options, commands)))
    return 0


@dataclass(frozen=True, slots=True)
class Option:
    """An option of a command."""

    spellings: list[str]
    purpose: str
    value: str | None
    """The name of its value; None: it takes no value."""
    choices: list[str]


@dataclass(frozen=True, slots=True)
class Words:
    """The options and arguments of a command."""

    name: str
    options: list[Option]
    choices: list[str]
    """The possible values of its first argument, if they are limited."""

    @property
    def runs(self) -> bool:
        """Whether a command of the user follows after `--`."""
        return self.name == "run"


def parsers(program: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the parser of each command."""
    (commands,) = [
        action
        for action in program._actions  # noqa: SLF001 - argparse has no public access to its actions
        if isinstance(action, argparse._SubParsersAction)  # noqa: SLF001 - argparse does not export this class
    ]
    return cast("dict[str, argparse.ArgumentParser]", commands.choices)


def _words(name: str, parser: argparse.ArgumentParser) -> Words:
    options: list[Option] = []
    choices: list[str] = []
    for action in parser._actions:  # noqa: SLF001 - argparse has no public access to its actions
        offered = [str(choice) for choice in action.choices or ()]
        if action.option_strings:
            value = None if action.nargs == 0 else str(action.metavar or action.dest.upper())
            purpose = (action.help or "") % {"default": action.default, "prog": parser.prog}
            options.append(Option(list(action.option_strings), purpose.partition(" (")[0], value, offered))
        else:
            choices = choices or offered
    return Words(name, options, choices)


# -- bash --------------------------------------------------------------------------------------------------------------


def _bash(program: list[Option], commands: list[Words]) -> Iterator[str]:
    yield f'# Completions of {PROG} for bash: eval "$({PROG} completion bash)"'
    yield f"{FUNCTION}() {{"
    yield "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} offered= at"
    yield "    COMPREPLY=()"
    # Search for the command instead of counting words: bash splits a URL before it at each : and =.
    yield "    for ((at = 1; at < COMP_CWORD; at++)); do"
    yield f"        case ${{COMP_WORDS[at]}} in {'|'.join(COMMANDS)}) break ;; esac"
    yield "    done"
    yield "    if ((at == COMP_CWORD)); then"
    yield f"        case $before in {'|'.join(_valued(program))}|[:=@]) return ;; esac"
    yield f"        {_bash_reply([*_spellings(program), *COMMANDS])}"
    yield "        return"
    yield "    fi"
    yield "    case ${COMP_WORDS[at]} in"
    for command in commands:
        yield f"    {command.name})"
        if command.runs:
            # If bash-completion is loaded, let it complete the arguments of the user's command.
            yield "        for ((at++; at < COMP_CWORD; at++)); do"
            yield "            [[ ${COMP_WORDS[at]} == -- ]] || continue"
            yield "            if declare -F _comp_command_offset >/dev/null; then _comp_command_offset $((at + 1))"
            yield "            elif declare -F _command_offset >/dev/null; then _command_offset $((at + 1))"
            yield '            elif ((at == COMP_CWORD - 1)); then COMPREPLY=($(compgen -c -- "$word"))'
            yield '            else COMPREPLY=($(compgen -f -- "$word")); fi'
            yield "            return"
            yield "        done"
        yield "        case $before in"
        for option in command.options:
            if option.value is not None:
                reply = _bash_reply(option.choices) + "; " if option.choices else ""
                yield f"        {'|'.join(option.spellings)}) {reply}return ;;"
        yield "        esac"
        yield f"        offered='{' '.join(_spellings(command.options))}'"
        if command.choices:
            yield f"        [[ $word == -* ]] || offered='{' '.join(command.choices)}'"
        else:
            yield "        [[ $word == -* ]] || return"
        yield "        ;;"
    yield "    esac"
    yield '    COMPREPLY=($(compgen -W "$offered" -- "$word"))'
    yield "}"
    yield f"complete -F {FUNCTION} {PROG}"


def _spellings(options: list[Option]) -> Iterator[str]:
    for option in options:
        yield from option.spellings


def _valued(options: list[Option]) -> Iterator[str]:
    yield from _spellings([option for option in options if option.value is not None])


def _bash_reply(words: list[str]) -> str:
    return f"COMPREPLY=($(compgen -W '{' '.join(words)}' -- \"$word\"))"


# -- zsh ---------------------------------------------------------------------------------------------------------------


def _zsh(program: list[Option], commands: list[Words]) -> Iterator[str]:
    yield f"#compdef {PROG}"
    yield f'# Completions of {PROG} for zsh: eval "$({PROG} completion zsh)" after compinit'
    yield f"{FUNCTION}() {{"
    # Not `commands`, which is a table of zsh's own.
    yield "    local -a offered"
    yield "    offered=("
    for name, purpose in COMMANDS.items():
        yield f"        {_quoted(f'{name}:{purpose}')}"
    yield "    )"
    yield "    local -i at=2"
    yield "    while ((at < CURRENT)); do"
    yield f"        case $words[at] in {'|'.join(_valued(program))}) ((at += 2)) ;; -*) ((at++)) ;; *) break ;; esac"
    yield "    done"
    yield "    if ((at >= CURRENT)); then"
    yield f"        if [[ $PREFIX == -* ]] || ((at > CURRENT)); then _arguments {_zsh_options(program)}"
    yield "        else _describe command offered; fi"
    yield "        return"
    yield "    fi"
    yield "    local command=$words[at]"
    yield "    shift at-1 words"
    yield "    ((CURRENT -= at - 1))"
    yield "    case $command in"
    for command in commands:
        yield f"    {command.name})"
        if command.runs:
            # _arguments would expect the command after NAME, where further options can still follow.
            yield "        at=${words[(i)--]}"
            yield "        if ((at < CURRENT)); then"
            yield "            shift $at words"
            yield "            ((CURRENT -= at))"
            yield "            _normal"
            yield "            return"
            yield "        fi"
        offered = f"({' '.join(command.choices)})" if command.choices else ""
        yield f"        _arguments -S {_zsh_options(command.options)} '1:argument:{offered}'"
        yield "        ;;"
    yield "    esac"
    yield "}"
    # As a file in fpath, the script is itself the first call of the function.
    yield f'if [[ $funcstack[1] == {FUNCTION} ]]; then {FUNCTION} "$@"; else compdef {FUNCTION} {PROG}; fi'


def _zsh_options(options: list[Option]) -> str:
    return " ".join(specification for option in options for specification in _zsh_option(option))


def _zsh_option(option: Option) -> Iterator[str]:
    purpose = option.purpose
    for char in "\\[]:":
        purpose = purpose.replace(char, f"\\{char}")
    value = "" if option.value is None else f":{option.value.replace(':', ' ')}:"
    if option.choices:
        value += f"({' '.join(option.choices)})"
    others = f"({' '.join(option.spellings)})" if len(option.spellings) > 1 else ""
    for spelling in option.spellings:
        yield _quoted(f"{others}{spelling}[{purpose}]{value}")


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


# -- fish --------------------------------------------------------------------------------------------------------------


def _fish(program: list[Option], commands: list[Words]) -> Iterator[str]:
    yield f"# Completions of {PROG} for fish: {PROG} completion fish > ~/.config/fish/completions/{PROG}.fish"
    yield f"function {FUNCTION}_command"
    yield "    set -l words (commandline -opc) (commandline -ct)"
    yield "    set -l at (contains -i -- -- $words)"
    yield "    set -l line (string escape -- $words[(math $at + 1)..-2]) $words[-1]"
    yield "    complete -C (string join ' ' -- $line)"
    yield "end"
    yield f"complete -c {PROG} -f"
    # Not __fish_use_subcommand, which takes the URLs of an option before the command for a command.
    before = f"complete -c {PROG} -n 'not __fish_seen_subcommand_from {' '.join(COMMANDS)}'"
    for name, purpose in COMMANDS.items():
        yield f"{before} -a {name} -d {_fish_quoted(purpose)}"
    for option in program:
        yield f"{before} {_fish_option(option)}"
    for command in commands:
        seen = f"complete -c {PROG} -n '__fish_seen_subcommand_from {command.name}'"
        for option in command.options:
            yield f"{seen} {_fish_option(option)}"
        if command.choices:
            yield f"{seen} -a {_fish_quoted(' '.join(command.choices))}"
        elif command.runs:
            after = f"__fish_seen_subcommand_from {command.name}; and contains -- -- (commandline -opc)"
            yield f"complete -c {PROG} -n {_fish_quoted(after)} -a '({FUNCTION}_command)'"


def _fish_option(option: Option) -> str:
    names = " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.spellings)
    value = "" if option.value is None else " -x"
    if option.choices:
        value += f" -a {_fish_quoted(' '.join(option.choices))}"
    return f"{names}{value} -d {_fish_quoted(option.purpose)}"


def _fish_quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
