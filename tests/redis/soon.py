"""Bounds of time for tests in which a machine that is busy with other work must make no difference.

How many milliseconds something takes on an idle machine is measured in benchmarks/, and bounded on the clock of the
simulation. Here a test tells two explanations apart: either a node reported it, within `SOON`, or the waiter had to
poll or wait for an expiry, which takes `LONG`.
"""

SOON = 5.0
"""Seconds in which everything happens that does not wait for a timeout, on a busy machine too."""

LONG = 60.0
"""Seconds for a ttl, a wait or a pause between two polls that must play no part."""
