"""The Lua files: each documents its arguments and reply, each is called, and every script that is called exists."""

import ast
import re
from functools import cache
from hashlib import sha1
from pathlib import Path

import pytest

import redlock_async
from redlock_async._transport.commands import (
    Call,
    CompareAndDelete,
    DeleteIfEqual,
    Script,
    SetIfAbsent,
    included,
    script,
)
from redlock_async._transport.connection import pack
from redlock_async._transport.node import PRELOADED

PACKAGE = Path(redlock_async.__file__).parent
FILES = sorted((PACKAGE / "lua").glob("*.lua"))
NAMES = {path.stem for path in FILES}

every_file = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)


def split(path):
    """Return the comment at the start of a file, and the code below it."""
    lines = path.read_text("utf-8").splitlines()
    height = next(number for number, line in enumerate(lines) if not line.startswith("--"))
    return "\n".join(line.removeprefix("--") for line in lines[:height]), "\n".join(lines[height:])


def code_of(path):
    """Return the code without its comments."""
    return re.sub(r"--.*", "", split(path)[1])


@cache
def called():
    """Return the names of all scripts that the package's Python code calls."""
    found = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("Call", "script"):
                found |= {arg.value for arg in node.args[:1] if isinstance(arg, ast.Constant)}
    return found


def test_there_are_scripts():
    """Otherwise the other tests would check nothing."""
    assert len(FILES) >= 7
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)+", name) for name in NAMES), NAMES


@every_file
def test_the_header_names_the_file_and_its_purpose(path):
    """In one sentence, so that a script in a server's log can be found and understood."""
    header, _ = split(path)
    assert re.match(rf" {path.name}: [a-z].*\.$", header.splitlines()[0])


@every_file
def test_the_header_explains_keys_arguments_and_reply(path):
    """KEYS and Returns always, ARGV exactly if the code reads any."""
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
    assert not {each for each in listed - read if each.startswith("ARGV")}, "documented, but not used"


@every_file
def test_no_script_leaks_a_global(path):
    """Servers refuse scripts that create one."""
    for name in re.findall(r"^\s*([a-z_]\w*)\s*=[^=]", code_of(path), re.MULTILINE):
        assert re.search(rf"local [^\n=]*\b{name}\b", code_of(path)), name


@every_file
def test_every_file_is_called(path):
    """A script that is not called is not tested either."""
    assert path.stem in called()


def test_every_called_script_exists():
    """A misspelt name would be found only when that branch runs."""
    assert called() <= NAMES


def test_preloaded_scripts_exist():
    """Every connection loads them first; the scripts on the way to a lease must be among them."""
    assert set(PRELOADED) <= NAMES
    assert len(set(PRELOADED)) == len(PRELOADED)
    assert {"mutex_acquire", "mutex_extend", "mutex_release", "mutex_reassert"} <= set(PRELOADED)


@every_file
def test_a_script_is_called_by_the_hash_of_its_bytes(path):
    """A server computes the hash of the source that it is sent."""
    loaded = Script(path.stem)
    assert loaded.source == included(path.read_bytes())
    assert loaded.sha == sha1(loaded.source, usedforsecurity=False).hexdigest().encode()
    assert b"\r" not in loaded.source


def test_a_file_is_read_once():
    """Not for every command."""
    assert script("mutex_acquire") is script("mutex_acquire")


def test_a_missing_script_is_an_error_immediately():
    """When the command is built, not when a server replies."""
    with pytest.raises(FileNotFoundError):
        Call("no_such_script", 0)


def test_a_command_is_packed_once_for_all_nodes():
    """The same bytes object goes to every connection."""
    for command in (Call("mutex_force", 1, b"k"), SetIfAbsent(b"k", b"t", 1), DeleteIfEqual(b"k", b"t")):
        for dialect in (CompareAndDelete.PLAIN, CompareAndDelete.DELIFEQ, CompareAndDelete.DELEX):
            assert command.pack(dialect) is command.pack(dialect)


@pytest.mark.parametrize("key", [b"x", "ключ".encode(), b"%d\r\n$5\r\n%b", b"k" * 4096])
@pytest.mark.parametrize("token", [b"0" * 32 + b":host:1", b"%s\r\n"])
def test_formats_give_the_bytes_that_hiredis_gives(key, token):
    """Also for keys that look like a part of a command or of a format."""
    release = DeleteIfEqual(key, token)
    assert SetIfAbsent(key, token, 12_345).pack(CompareAndDelete.PLAIN) == pack(("SET", key, token, "NX", "PX", 12_345))
    assert release.pack(CompareAndDelete.DELIFEQ) == pack(("DELIFEQ", key, token))
    assert release.pack(CompareAndDelete.DELEX) == pack(("DELEX", key, "IFEQ", token))
