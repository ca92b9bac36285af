"""Locks that are acquired and released in the same moment share a command, and nothing else."""

import asyncio
from zlib import crc32

import pytest

from redlock_async import Lease, QuorumUnavailable, Redlock, WrongKeyType

NAMES = [f"name {number}" for number in range(40)]


async def taken(redlock, *names):
    """Acquire those locks in the same moment; return the leases, or the errors."""
    return await asyncio.gather(*(redlock(name, wait=0.5).acquire() for name in names), return_exceptions=True)


async def released(leases):
    """Release them in the same moment."""
    await asyncio.gather(*(lease.release() for lease in leases if isinstance(lease, Lease)))


def calls(client, command):
    """How often a server has executed that command, also in scripts."""
    return client.info("commandstats").get(f"cmdstat_{command}", {"calls": 0})["calls"]


@pytest.mark.asyncio
async def test_many_locks_in_one_moment_take_few_commands(nodes, eyes, eventually):
    """Each gets a token and a fencing token of its own, and is held and released on every node."""
    async with Redlock(nodes) as redlock:
        await released(await taken(redlock, "first"))
        before = [calls(client, "evalsha") for client in eyes.clients]
        leases = await taken(redlock, *NAMES)
        await eventually(lambda: all(eyes.holding(each.name) == [each.token.encode()] * 5 for each in leases))
        assert len({lease.token for lease in leases}) == len(NAMES)
        again = await taken(redlock, "again")
        assert all(type(lease.fencing_token) is int for lease in (*leases, *again))
        await released(leases + again)
        await eventually(lambda: eyes.keys() == [], within=0.2)
        # Two groups to acquire, two to release, and one lock alone; the first check of a lease may come in between.
        assert all(calls(client, "evalsha") - count <= 8 for client, count in zip(eyes.clients, before, strict=True))
        later = await taken(redlock, *NAMES)
        assert all(new.fencing_token > old.fencing_token for new, old in zip(later, leases, strict=True))
        await released(later)


@pytest.mark.asyncio
async def test_a_held_name_is_refused_alone(nodes, eyes, eventually):
    async with Redlock(nodes, owner="one") as redlock, Redlock(nodes, owner="other") as other:
        held = await taken(other, NAMES[3], NAMES[17])
        results = await taken(redlock, *NAMES)
        failed = {
            name: str(result) for name, result in zip(NAMES, results, strict=True) if isinstance(result, Exception)
        }
        assert set(failed) == {NAMES[3], NAMES[17]}
        assert all("held by other" in why for why in failed.values())
        await released(results + held)
        await eventually(lambda: eyes.keys() == [], within=0.2)


@pytest.mark.asyncio
async def test_a_key_of_another_type_is_its_own_names_error(nodes, eyes, eventually):
    """The lock's key, or its fence register."""
    for eye in eyes.clients[:3]:
        eye.lpush("bad", 1)
        eye.lpush(f"redlock-async:fence:{crc32(b'worse') % 16384}", 1)
    async with Redlock(nodes) as redlock:
        results = await taken(redlock, *NAMES, "bad", "worse")
        assert [type(result) for result in results] == [Lease] * 40 + [WrongKeyType] * 2
        await eventually(lambda: all(lease.spare_votes == 2 for lease in results[:40]))
        await released(results)
        await eventually(lambda: len(eyes.keys()) == 3, within=0.2)


@pytest.mark.asyncio
async def test_a_name_that_is_denied_is_its_own_error(nodes, eyes, eventually):
    """The server rejects the whole command then."""
    for eye in eyes.clients:
        eye.execute_command("ACL", "SETUSER", "short", "reset", "on", ">pw", "~name*", "~redlock-async:*", "+@all")
    urls = [url.replace("redis://", "redis://short:pw@") for url in nodes]
    try:
        async with Redlock(urls) as redlock:
            for _ in range(2):
                results = await taken(redlock, *NAMES[:20], "secret", *NAMES[20:])
                (denied,) = (result for result in results if isinstance(result, Exception))
                assert isinstance(denied, QuorumUnavailable)
                assert "'secret'" in str(denied)
                assert "ACL lacks a permission" in str(denied)
                await released(results)
                await eventually(lambda: eyes.keys() == [], within=0.2)
    finally:
        for eye in eyes.clients:
            eye.execute_command("ACL", "DELUSER", "short")


@pytest.mark.asyncio
async def test_a_full_server_grants_none_of_a_group(nodes, eyes, eventually):
    """And all of them when it has room again."""
    async with Redlock(nodes) as redlock:
        await released(await taken(redlock, "first"))
        for eye in eyes.clients[:3]:
            eye.config_set("maxmemory", 1)
        try:
            results = await taken(redlock, *NAMES)
        finally:
            for eye in eyes.clients[:3]:
                eye.config_set("maxmemory", 0)
        assert {type(result) for result in results} == {QuorumUnavailable}
        assert all("maxmemory" in str(result) for result in results)
        results = await taken(redlock, *NAMES)
        assert {type(result) for result in results} == {Lease}
        await released(results)
        await eventually(lambda: eyes.keys() == [], within=0.2)


@pytest.mark.asyncio
async def test_a_group_is_sent_again_to_servers_that_have_forgotten_the_script(nodes, eyes, eventually):
    """In the middle of its acquires and its releases."""
    async with Redlock(nodes) as redlock:
        await released(await taken(redlock, "first"))
        for _ in range(3):
            for eye in eyes.clients:
                eye.script_flush()
            leases = await taken(redlock, *NAMES)
            assert {type(lease) for lease in leases} == {Lease}
            for eye in eyes.clients:
                eye.script_flush()
            await released(leases)
            await eventually(lambda: eyes.keys() == [], within=0.2)


@pytest.mark.asyncio
async def test_a_cancelled_member_leaves_no_key_and_disturbs_no_other(nodes, eyes, eventually):
    """At every moment of the group's round trip."""
    async with Redlock(nodes) as redlock:
        await released(await taken(redlock, "first"))
        for ticks in range(8):
            tasks = [asyncio.create_task(redlock(name).acquire()) for name in NAMES]
            for _ in range(ticks):
                await asyncio.sleep(0)
            for task in tasks[::2]:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            assert {type(result) for result in results[1::2]} == {Lease}
            await released(results)
            await eventually(lambda: eyes.keys() == [], within=0.2)
