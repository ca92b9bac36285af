"""Templates of lock names, such as `"orders:{order_id}"`. No I/O."""

from __future__ import annotations

import re
import string
from collections.abc import Iterator, Mapping
from typing import Any

from redlock_async.errors import ConfigurationError, short_repr

_FORMATTER = string.Formatter()
_ATTRIBUTE = re.compile(r"(\w+)\.(\w+)")
_NAME = re.compile(r"(\w+)(.?)")


class BadValueError(ValueError):
    """A value in a request cannot be part of a lock's name."""


def fields(template: str) -> set[str]:
    """Return the names of the values in a template: `user` and `ids` for `{user.id}` and `{ids[0]}`.

    Raise ConfigurationError for a malformed template, and for positional fields.
    """
    try:
        parsed = list(_parse(template))
    except (ValueError, TypeError) as exc:
        raise ConfigurationError(f"not a template of a lock's name: {short_repr(template)}: {exc}") from None
    names = {field.split(".")[0].split("[")[0] for field in parsed}
    if any(not name or name.isdigit() for name in names):
        raise ConfigurationError(
            f"a template takes arguments by name, as in 'import:{{user_id}}', got {short_repr(template)}"
        )
    return names


def _parse(template: str) -> Iterator[str]:
    for _, field, specification, _ in _FORMATTER.parse(template):
        if field is not None:
            yield field
            yield from _parse(specification or "")  # as in {user_id:{width}}


class Template:
    """A template that is filled with untrusted values from requests.

    The result is the name that `Redlock.locked` makes of the same template and values, so that a service and a worker
    with the same template exclude each other. Therefore nothing is escaped, and values are rejected if other values
    could yield the same name: in `"{tenant}:{order}"` a tenant that contains a colon. Values of other types are
    formatted as text. An optional value that is missing is rejected, because its name would equal that of the text
    "None".
    """

    def __init__(self, text: str) -> None:
        self.fields = frozenset(fields(text))
        self._text = text
        self._places: list[tuple[str, str]] = []
        """For each field, the value that it names, and the field as text."""
        self._between = [""]
        """The literal text before the first field, after it, and so on."""
        for literal, field, specification, conversion in _FORMATTER.parse(text):
            self._between[-1] += literal
            if field is None:
                continue
            if "{" in (specification or ""):
                raise ConfigurationError(
                    f"the format of a value in {short_repr(text)} depends on another value. Write the format out"
                )
            how = (f"!{conversion}" if conversion else "") + (f":{specification}" if specification else "")
            self._places.append((field, f"{{{field}{how}}}"))
            self._between.append("")
        if not all(self._between[1:-1]):
            raise ConfigurationError(
                f"two values in {short_repr(text)} are adjacent, so that 1 and 23 would give the name of 12 and 3. "
                "Put a separator between them"
            )

    def __str__(self) -> str:
        return self._text

    @property
    def attributes(self) -> set[tuple[str, str]]:
        """The attributes of values that the template names: (item, sku) for `{item.sku}`."""
        named = (_ATTRIBUTE.match(field) for field, _ in self._places)
        return {(found[1], found[2]) for found in named if found is not None}

    @property
    def entire(self) -> set[str]:
        """The values that are not indexed: `item` for `{item}` and `{item.sku}`, but not for `{item[sku]}`."""
        named = (_NAME.match(field) for field, _ in self._places)
        return {found[1] for found in named if found is not None and found[2] != "["}

    def fill(self, values: Mapping[str, Any]) -> str:
        """Return the name; raise BadValueError if a value is missing or could yield another request's name."""
        name = self._between[0]
        for number, ((field, slot), behind) in enumerate(zip(self._places, self._between[1:], strict=True), 1):
            try:
                value, _ = _FORMATTER.get_field(field, (), values)
                text = slot.format_map(values)
            except (AttributeError, LookupError, TypeError, ValueError) as exc:
                raise BadValueError(f"{slot} of the lock's name is missing, or of another type") from exc
            if value is None:
                raise BadValueError(f"{slot} of the lock's name is not given")
            # Parsed from the left, each value ends at the first occurrence of the text after it. If that is where the
            # value really ends, no other values yield this name. The last value may contain anything.
            if number < len(self._places) and (text + behind).index(behind) != len(text):
                raise BadValueError(f"{slot} of the lock's name must not contain {behind!r}, nor end with a part of it")
            name += text + behind
        return name
