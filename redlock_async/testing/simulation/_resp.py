"""The kinds of reply and their encoding in RESP2 and RESP3. No state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

RESP2, RESP3 = 2, 3


class Status(bytes):
    """A simple string, such as OK."""

    __slots__ = ()


class Failure(bytes):
    """An error among the parts of a script's reply."""

    __slots__ = ()


class Text(bytes):
    """A verbatim string in RESP3, such as INFO's."""

    __slots__ = ()


class Members(list["Reply"]):
    """A set."""

    __slots__ = ()


class Pairs(dict[bytes, "Reply"]):
    """A map, in RESP2 a flat array."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Scored:
    """Members with their scores, in RESP2 a flat array."""

    members: list[tuple[bytes, float]]

    def flat(self) -> Iterator[bytes]:
        """Member, score, member, score."""
        for member, score in self.members:
            yield member
            yield number_text(score)


Reply = bytes | int | float | None | Status | Failure | Text | list["Reply"] | Members | Pairs | Scored

OK = Status(b"OK")

WRONG_TYPE = b"WRONGTYPE Operation against a key holding the wrong kind of value"
NOT_AN_INTEGER = b"ERR value is not an integer or out of range"
NOT_A_FLOAT = b"ERR value is not a valid float"
SYNTAX = b"ERR syntax error"


class ErrorReply(Exception):  # noqa: N818 - a reply, not an error of this program
    """An error reply."""

    def __init__(self, text: bytes) -> None:
        super().__init__(text)
        self.text = text


def integer(argument: bytes) -> int:
    """Parse a 64-bit integer as strictly as the server: no plus sign, spaces or leading zeros."""
    try:
        number = int(argument)
    except ValueError:
        raise ErrorReply(NOT_AN_INTEGER) from None
    if b"%d" % number != argument or not -(1 << 63) <= number < 1 << 63:
        raise ErrorReply(NOT_AN_INTEGER)
    return number


def real(argument: bytes, message: bytes = NOT_A_FLOAT) -> float:
    """Parse a float as the server does."""
    try:
        number = float(argument)
    except ValueError:
        raise ErrorReply(message) from None
    if number != number or b"_" in argument or argument != argument.strip():  # noqa: PLR0124 - not a number
        raise ErrorReply(message)
    return number


def number_text(number: float) -> bytes:
    """Format a double as the server does: a whole number without a decimal point."""
    if number in {float("inf"), -float("inf")}:
        return b"inf" if number > 0 else b"-inf"
    if abs(number) < 1 << 63 and number == int(number):
        return b"%d" % int(number)
    return repr(float(number)).replace("e-0", "e-").encode()


def encode(reply: Reply, resp: int) -> bytes:
    """Encode a reply."""
    if type(reply) is bytes:
        return b"$%d\r\n%b\r\n" % (len(reply), reply)
    if type(reply) is int:
        return b":%d\r\n" % reply
    if reply is None:
        return b"_\r\n" if resp == RESP3 else b"$-1\r\n"
    return _encode_rare(reply, resp)


def _encode_rare(reply: Reply, resp: int) -> bytes:  # noqa: PLR0911 - one return per kind of reply
    match reply:
        case Status():
            return b"+%b\r\n" % one_line(reply)
        case Failure():
            return error(reply)
        case Text():
            return b"=%d\r\ntxt:%b\r\n" % (len(reply) + 4, reply) if resp == RESP3 else encode(bytes(reply), resp)
        case Scored():
            return _encode_scored(reply, resp)
        case Members():
            return _encode_all(b"~" if resp == RESP3 else b"*", len(reply), reply, resp)
        case Pairs():
            head, size = (b"%", len(reply)) if resp == RESP3 else (b"*", 2 * len(reply))
            return _encode_all(head, size, (part for pair in reply.items() for part in pair), resp)
        case list():
            return _encode_all(b"*", len(reply), reply, resp)
        case float():
            return b",%b\r\n" % number_text(reply) if resp == RESP3 else encode(number_text(reply), resp)
    msg = f"not a reply: {reply!r}"
    raise TypeError(msg)


def _encode_scored(reply: Scored, resp: int) -> bytes:
    if resp == RESP3:
        return _encode_all(b"*", len(reply.members), ([member, score] for member, score in reply.members), resp)
    return _encode_all(b"*", 2 * len(reply.members), reply.flat(), resp)


def _encode_all(head: bytes, size: int, parts: Iterable[Reply], resp: int) -> bytes:
    return b"%b%d\r\n%b" % (head, size, b"".join([encode(part, resp) for part in parts]))


def error(text: bytes) -> bytes:
    """Encode an error reply."""
    return b"-%b\r\n" % one_line(text)


def one_line(text: bytes) -> bytes:
    """Replace line ends, which would end the reply."""
    return text.replace(b"\r", b" ").replace(b"\n", b" ")


def invalidation(key: bytes) -> bytes:
    """The push for a changed key that the session has read."""
    return b">2\r\n$10\r\ninvalidate\r\n*1\r\n$%d\r\n%b\r\n" % (len(key), key)


FLUSHED = b">2\r\n$10\r\ninvalidate\r\n_\r\n"
"""The push for a flush of all keys."""
