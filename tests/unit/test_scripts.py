"""The Lua files: each says what it takes and returns, each is called, and none is called that is not there."""

import ast
import re
from hashlib import sha1
from pathlib import Path

import pytest

import redlock_async
from redlock_async._node import PRELOADED
from redlock_async._scripts import Call, DeleteIfEqual, Dialect, Script, SetIfAbsent, script

PACKAGE = Path(redlock_async.__file__).parent
FILES = sorted((PACKAGE / "lua").glob("*.lua"))
NAMES = {path.stem for path in FILES}

every_file = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)


def split(path):
    """The comment a file opens with, and the code below it."""
    lines = path.read_text("utf-8").splitlines()
    height = next(number for number, line in enumerate(lines) if not line.startswith("--"))
    return "\n".join(line.removeprefix("--") for line in lines[:height]), "\n".join(lines[height:])


def code_of(path):
    """The code without its comments."""
    return re.sub(r"--.*", "", split(path)[1])


def called():
    """The script names that stand as text anywhere in the package's Python, docstrings aside."""
    found = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("Call", "script"):
                found |= {arg.value for arg in node.args[:1] if isinstance(arg, ast.Constant)}
    return found


def test_there_are_scripts():
    """The other tests are about something."""
    assert len(FILES) >= 7
    assert all(re.fullmatch(r"[a-z]+_[a-z]+", name) for name in NAMES), NAMES


@every_file
def test_the_header_names_the_file_and_what_it_does(path):
    """One sentence, so that a script seen in a server's log is found and understood."""
    header, _ = split(path)
    assert re.match(rf" {path.name}: [a-z].*\.$", header.splitlines()[0])


@every_file
def test_the_header_explains_keys_arguments_and_reply(path):
    """KEYS and Returns always, ARGV where there are any, and no ARGV where there are none."""
    header, _ = split(path)
    assert re.search(r"^ KEYS", header, re.MULTILINE)
    assert re.search(r"^ Returns ", header, re.MULTILINE)
    assert ("ARGV" in header) == ("ARGV" in code_of(path))


@every_file
def test_every_argument_that_the_code_reads_is_in_the_header(path):
    """ARGV[4] in the code is ARGV[4] in the header; KEYS by number, or all of them as a list."""
    header, _ = split(path)
    read = set(re.findall(r"(?:KEYS|ARGV)\[\d+\]", code_of(path)))
    listed = set(re.findall(r"(?:KEYS|ARGV)\[\d+\]", header))
    as_list = re.search(r"^ KEYS(?:\[i\])? ", header, re.MULTILINE)
    missing = {each for each in read - listed if not (as_list and each.startswith("KEYS"))}
    assert not missing
    assert not {each for each in listed - read if each.startswith("ARGV")}, "explained, but not used"


@every_file
def test_no_script_leaks_a_global(path):
    """Servers refuse scripts that create one."""
    for name in re.findall(r"^\s*([a-z_]\w*)\s*=[^=]", code_of(path), re.MULTILINE):
        assert re.search(rf"local [^\n=]*\b{name}\b", code_of(path)), name


@every_file
def test_every_file_is_called(path):
    """A script that nobody calls is not tested by anybody either."""
    assert path.stem in called()


def test_no_script_is_called_that_is_not_there():
    """A misspelt name would be found only when that branch runs."""
    assert called() <= NAMES


def test_preloaded_scripts_are_there():
    """What every connection loads first; a script on the way to a lease must be among them."""
    assert set(PRELOADED) <= NAMES
    assert len(set(PRELOADED)) == len(PRELOADED)
    assert {"mutex_acquire", "mutex_extend", "mutex_release", "mutex_secure"} <= set(PRELOADED)


@every_file
def test_a_script_is_called_by_the_hash_of_its_bytes(path):
    """The hash that a server computes of what it is sent."""
    loaded = Script(path.stem)
    assert loaded.source == path.read_bytes()
    assert loaded.sha == sha1(path.read_bytes(), usedforsecurity=False).hexdigest().encode()
    assert b"\r" not in loaded.source


def test_a_file_is_read_once():
    """Not once a command."""
    assert script("mutex_acquire") is script("mutex_acquire")


def test_a_script_that_is_not_there_is_an_error_at_once():
    """When the command is made, not when a server answers."""
    with pytest.raises(FileNotFoundError):
        Call("no_such_script", 0)


def test_a_command_is_packed_once_for_all_nodes():
    """The same bytes object goes to every connection."""
    for command in (Call("mutex_force", 1, b"k"), SetIfAbsent(b"k", b"t", 1), DeleteIfEqual(b"k", b"t")):
        for dialect in (Dialect.PLAIN, Dialect.DELIFEQ, Dialect.DELEX):
            assert command.pack(dialect) is command.pack(dialect)
