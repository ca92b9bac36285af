"""Which ticket each task drew last: a lease of a fair lock does not keep it."""

import asyncio

from redlock_async._kinds.fair import FairAttempt

DRAWN = {}
"""The tickets, by task."""

_draw_ticket = FairAttempt._draw_ticket


async def drawn(attempt, deadline):
    """Draw a ticket, and note it."""
    ticket = DRAWN[asyncio.current_task()] = await _draw_ticket(attempt, deadline)
    return ticket
