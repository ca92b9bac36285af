"""A lock's name with places for values, as in `"orders:{order_id}"`. No I/O."""

from __future__ import annotations

import re
import string
from collections.abc import Iterator, Mapping
from typing import Any

from ._errors import ConfigurationError, shown

_FORMATTER = string.Formatter()
_ATTRIBUTE = re.compile(r"(\w+)\.(\w+)")
_NAME = re.compile(r"(\w+)(.?)")


class BadValueError(ValueError):
    """What a stranger sent cannot be part of a lock's name."""


def fields(template: str) -> set[str]:
    """The values a template names; `{user.id}` and `{ids[0]}` name `user` and `ids`."""
    try:
        parsed = list(_parse(template))
    except (ValueError, TypeError) as exc:
        raise ConfigurationError(f"not a template for a lock's name: {shown(template)}: {exc}") from None
    names = {field.split(".")[0].split("[")[0] for field in parsed}
    if any(not name or name.isdigit() for name in names):
        raise ConfigurationError(
            f"a lock's name takes arguments by name, as in 'import:{{user_id}}': {shown(template)}"
        )
    return names


def _parse(template: str) -> Iterator[str]:
    for _, field, specification, _ in _FORMATTER.parse(template):
        if field is not None:
            yield field
            yield from _parse(specification or "")  # as in {user_id:{width}}


class Template:
    """A template that strangers fill: what a client sends is a value, and never a part of the name's form.

    The name is the one that `Redlock.locked` makes of the same template and values, so that a service and a worker who
    use the same template exclude each other. Hence nothing is escaped: values that make a name which other values make
    as well are refused. Of `"{tenant}:{order}"` that is a tenant with a colon in it. What is not a text is written as
    one; but an optional value that is not there is refused, for its name would be that of the text "None".
    """

    def __init__(self, text: str) -> None:
        self.fields = frozenset(fields(text))
        self._text = text
        self._places: list[tuple[str, str]] = []
        """Each as which value it names, and in whole."""
        self._between = [""]
        """What stands before the first place, behind it, and so on."""
        for literal, field, specification, conversion in _FORMATTER.parse(text):
            self._between[-1] += literal
            if field is None:
                continue
            if "{" in (specification or ""):
                raise ConfigurationError(
                    f"the lock name {shown(text)} has one value decide how another is written: write it out"
                )
            how = (f"!{conversion}" if conversion else "") + (f":{specification}" if specification else "")
            self._places.append((field, f"{{{field}{how}}}"))
            self._between.append("")
        if not all(self._between[1:-1]):
            raise ConfigurationError(
                f"the lock name {shown(text)} has two values side by side, so that 1 and 23 would be 12 and 3: put "
                "something between them"
            )

    def __str__(self) -> str:
        return self._text

    @property
    def attributes(self) -> set[tuple[str, str]]:
        """The attributes that are named of values: (item, sku) for `{item.sku}`."""
        named = (_ATTRIBUTE.match(field) for field, _ in self._places)
        return {(found[1], found[2]) for found in named if found is not None}

    @property
    def entire(self) -> set[str]:
        """The values of which no item is named: `item` for `{item}` and `{item.sku}`, but not for `{item[sku]}`."""
        named = (_NAME.match(field) for field, _ in self._places)
        return {found[1] for found in named if found is not None and found[2] != "["}

    def fill(self, values: Mapping[str, Any]) -> str:
        """The name, or BadValueError for whoever sent values that cannot be part of one."""
        name = self._between[0]
        for number, ((field, slot), behind) in enumerate(zip(self._places, self._between[1:], strict=True), 1):
            try:
                value, _ = _FORMATTER.get_field(field, (), values)
                text = slot.format_map(values)
            except (AttributeError, LookupError, TypeError, ValueError) as exc:
                raise BadValueError(f"{slot} of the lock's name is missing, or of another type") from exc
            if value is None:
                raise BadValueError(f"{slot} of the lock's name is not given")
            # Read from the left, each value ends at the first of what stands behind it: if that is where it does end,
            # no other values make this name. The last one has all that is left.
            if number < len(self._places) and (text + behind).index(behind) != len(text):
                raise BadValueError(f"{slot} of the lock's name may not contain {behind!r}, nor end with a part of it")
            name += text + behind
        return name
