"""Names with values from requests: no two requests share a name, and no value is read as a template."""

from itertools import product
from types import SimpleNamespace

import pytest

from redlock_async._rules.template import Template, fields
from redlock_async.errors import ConfigurationError

TEXTS = ["".join(each) for length in range(4) for each in product("a:-", repeat=length)]


@pytest.mark.parametrize("template", ["{a}:{b}", "{a}::{b}", "-{a}:-{b}:", "{a}:-:{b}", "x{a}:a{b}a"])
def test_no_two_pairs_of_values_have_one_name(template):
    """For all short texts with the characters of the separators; and most pairs are accepted."""
    made, refused = {}, 0
    for a, b in product(TEXTS, TEXTS):
        try:
            name = Template(template).fill({"a": a, "b": b})
        except ValueError:
            refused += 1
            continue
        assert name == template.format(a=a, b=b), "as `locked` makes it"
        assert made.setdefault(name, (a, b)) == (a, b)
    assert 0 < refused < len(TEXTS) ** 2 * 0.7


def test_a_single_value_may_be_anything():
    """Braces, colons and percent signs included; it is inserted, not parsed."""
    for text in ("a:b", "{0}", "{item}", "{{}}", "%s", "", "a{b!r}"):
        assert Template("x:{item}").fill({"item": text}) == f"x:{text}"


def test_attributes_items_conversions_and_braces():
    """Everything in a format, except nested fields."""
    values = {"item": SimpleNamespace(sku="a"), "headers": {"webhook-id": "b"}, "number": 7}
    assert Template("{{{item.sku}}}:{headers[webhook-id]!r}:{number:03d}").fill(values) == "{a}:'b':007"
    assert Template("{item.sku} {number}").attributes == {("item", "sku")}
    assert Template("{item.sku} {number:03d} {headers[x.y]} {a!r}{{").entire == {"item", "number", "a"}
    assert Template("constant").fill({}) == "constant"


@pytest.mark.parametrize("template", ["{item.sku}", "{item[sku]}", "{number:d}", "{number:>100x}"])
@pytest.mark.parametrize("item", [None, {}, 7])
def test_a_value_that_is_missing_or_of_another_type_is_a_value_error(template, item):
    """Whichever exception Python raises."""
    with pytest.raises(ValueError, match="is missing, or of another type"):
        Template(template).fill({"item": item, "number": "seven"})


@pytest.mark.parametrize("template", ["{a}", "x:{a}:y", "{a!r}", "{a!s:>9}", "{b.a}", "{b.c[d]}"])
def test_a_missing_value_is_not_the_text_none(template):
    """An optional value that was not sent: a request with the text "None" would have the same lock."""
    with pytest.raises(ValueError, match="is not given"):
        Template(template).fill({"a": None, "b": SimpleNamespace(a=None, c={"d": None})})
    assert Template("{a}").fill({"a": "None"}) == "None"


@pytest.mark.parametrize(
    ("template", "says"),
    [
        ("{a}{b}", "adjacent"), ("{a:{b}}", "depends on another"), ("{}", "by name"), ("{0}", "by name"),
        ("{a", "not a template"), (7, "not a template"), (b"{a}", "not a template"),
    ],
)  # fmt: skip
def test_an_unsafe_template_is_rejected(template, says):
    """When it is written down, not when a request arrives."""
    with pytest.raises(ConfigurationError, match=says):
        Template(template)


def test_fields_are_the_required_values():
    """Nested ones included, for trusted values."""
    assert fields("{a.b}:{c[d]}:{e:{f}}") == {"a", "c", "e", "f"}
