"""Remove secrets from what a server says, before anything quotes it. No I/O.

Servers and proxies echo what they do not understand:
`unknown command 'AUTH', with args beginning with: 'user' 'secret'`.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable

from redlock_async.errors import one_line

LONGEST_TEXT = 1000
"""Characters of a server's message that are looked at; the rest is dropped."""

SHORTEST_PREFIX = 4
"""Characters of a secret that are recognized where a server cut it off, and the length below which a secret is masked
only where it stands alone: `a` is a password as well, and occurs in every message."""

REMEMBERED = 16
"""Secrets kept for one node: a credential provider returns new ones again and again."""

MASK = "***"

_ECHO = re.compile(r",?\s*with args beginning with:.*", re.DOTALL)


class Redactor:
    """The secrets of one node, and a function that removes them from a text."""

    def __init__(self, secrets: Iterable[object] = ()) -> None:
        self._secrets: deque[str] = deque(maxlen=REMEMBERED)
        for secret in secrets:
            self.add(secret)

    def __repr__(self) -> str:
        return f"<Redactor of {len(self._secrets)} secrets>"

    def add(self, secret: object) -> None:
        """Remember a secret, text or bytes; anything else is ignored."""
        if isinstance(secret, bytes):
            secret = secret.decode("utf-8", "replace")
        if not isinstance(secret, str):
            return
        for form in {secret, one_line(secret, LONGEST_TEXT)}:  # the text may have been made printable already
            if form and form not in self._secrets:
                self._secrets.append(form)

    def __call__(self, text: str) -> str:
        """Return the text without the arguments that a server echoes, and with each secret replaced by `***`."""
        text = _ECHO.sub("", text[:LONGEST_TEXT])
        for secret in sorted(self._secrets, key=len, reverse=True):
            text = _without(text, secret)
        for secret in self._secrets:
            text = _without_beginnings(text, secret)
        return text


def scrub(error: Exception, redact: Callable[[str], str]) -> None:
    """Remove secrets from the message of an exception that is shown as the cause of one of ours."""
    error.args = tuple(redact(arg) if isinstance(arg, str) else arg for arg in error.args)


def _without(text: str, secret: str) -> str:
    pattern = re.escape(secret) if len(secret) >= SHORTEST_PREFIX else rf"(?<!\w){re.escape(secret)}(?!\w)"
    return re.sub(pattern, MASK, text, flags=re.IGNORECASE)


def _without_beginnings(text: str, secret: str) -> str:
    """Mask the beginning of a secret that a server has cut off: it ends with a word, or with the text."""
    if len(secret) < SHORTEST_PREFIX:
        return text
    start, beginning = 0, re.compile(re.escape(secret[:SHORTEST_PREFIX]), re.IGNORECASE)
    while found := beginning.search(text, start):
        start, end, length = found.start(), found.end(), SHORTEST_PREFIX
        while end < len(text) and length < len(secret) and text[end].lower() == secret[length].lower():
            end, length = end + 1, length + 1
        if end == len(text) or not text[end].isalnum():
            text = text[:start] + MASK + text[end:]
            start += len(MASK)
        else:
            start = end
    return text
