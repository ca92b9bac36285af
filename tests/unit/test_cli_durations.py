"""Durations on the command line."""

import math

import pytest

from redlock_async.cli import as_seconds


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 30.0), ("0", 0.0), ("1.5", 1.5), (".5", 0.5), ("1e3", 1000.0), ("-1", -1.0),
        ("500ms", 0.5), ("30s", 30.0), ("1.5s", 1.5), ("30m", 1800.0), ("2h", 7200.0), ("5 s", 5.0),
    ],
)  # fmt: skip
def test_a_duration_is_seconds_or_has_a_unit(text, seconds):
    """Seconds, as everywhere in the library, unless a unit says otherwise."""
    assert as_seconds(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "ms", "s", "3d", "3sm", "3hms", "ten", "1:30", "30 M", "30S", "nan", "nans"])
def test_anything_else_is_no_duration(text):
    """NaN fails every comparison with a bound, so each option rejects it in its own words."""
    assert math.isnan(as_seconds(text))
