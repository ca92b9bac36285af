"""The scripts that read a node's clock, and what it has recorded about itself and the others."""

RUN, NEXT_RUN = "a" * 40, "b" * 40
FRESH = "0123456789abcdef"
PREFIX = "app:redlock-async:"
KEY = f"{PREFIX}node"


MOVES = ("slots", "arrived", "left")
SHARD = f"{KEY}:{{@ABC}}"
"""The key of a shard's record: any slot of its own will do."""


def record(
    node, origin="", *others, key=KEY, run=RUN, replicated=0, durable=0, grace=10_000, fresh=FRESH, ttl=10_000,
    founding="", charter="", stepped="",
):  # fmt: skip
    """Run the script as a client that takes locks; return its reply by names, and what it has heard of by ids."""
    reply = node.run(
        "node_record", (key,), origin, run, replicated, durable, grace, fresh, ttl, founding, charter, stepped,
        *others,
    )  # fmt: skip
    names = ("now", "id", "ttl", "origin", "founding", "grace", "charter", "stepped", *MOVES)
    heard = reply[len(names) :]
    assert (reply[0], len(heard) % 3) == (node.us, 0)
    if reply[8:11] == [""] * 3:
        names = names[:8]  # of a shard only
    return {
        **dict(zip(names, reply, strict=False)),
        "heard": {each: (node.us - since, standing) for each, since, standing in zip(*[iter(heard)] * 3, strict=True)},
    }


def look(node):
    """Run it as a client that only reads."""
    return record(node, "read")


def fields(node):
    """The hash as it is stored."""
    stored, ttl = node.holds[KEY]
    assert ttl is None
    return stored


def as_new(us, **others):
    """The hash of a node that was recorded at that time, with these fields instead."""
    return {"id": f"{FRESH}-{us}", "server": RUN, "origin": "", "grace": "0", "ttl": "10000"} | others


def test_the_clock(node):
    """In µs; nothing is stored, and no key is read."""
    assert node.run("node_clock", ("any",)) == node.us
    node.after(1_234)
    assert node.run("node_clock", ("any",)) == node.us
    assert node.holds == {}


# Reading


def test_a_look_at_a_new_node(node):
    """It leaves no trace, and the client is notified when the node gets a record."""
    for _ in range(2):
        assert look(node) == {
            "now": node.us, "id": "", "ttl": 0, "origin": "", "founding": "", "grace": 0, "charter": "", "stepped": "",
            "heard": {},
        }  # fmt: skip
    assert node.holds == {}
    assert node.tells_the_client_of(KEY) == [KEY]


def test_a_look_changes_nothing(node):
    """Whatever the client knows: another server, a longer ttl, other nodes."""
    record(node, "joined", "other", "a")
    before = node.holds
    node.watch(KEY)
    node.after(2_000)
    said = record(node, "read", "another", "f", run=NEXT_RUN, replicated=1, ttl=20_000, founding="x")
    assert said == {
        "now": node.us, "id": f"{FRESH}-{node.us - 2_000_000}", "ttl": 10_000, "origin": "joined", "founding": "",
        "grace": 0, "charter": "", "stepped": "", "heard": {"other": (2_000_000, "a")},
    }  # fmt: skip
    assert node.holds == before
    assert node.told() == []


# The id of the data


def test_a_copy_of_another_node_gets_an_id_of_its_own(node):
    """It forgets what was recorded about the other one, and its fence registers, unless it was done already."""
    first = record(node, "joined", charter=THREE)["id"]
    assert record(node, "copied", founding="another", fresh="e" * 16) == record(node)
    node.do("SET", "app:redlock-async:fence:{COOO}", "5")
    said = record(node, "copied", founding=first, run="", fresh="f" * 16)
    assert said["id"].startswith("f" * 16)
    assert (said["origin"], said["charter"], said["grace"], said["founding"]) == ("", "", 0, "")
    assert "app:redlock-async:fence:{COOO}" not in node.holds
    assert fields(node)["server"] == RUN
    assert record(node, "copied", founding=first, fresh="e" * 16)["id"] == said["id"]


def test_a_new_node_gets_an_id(node):
    """From the client's random digits and the node's clock; it has heard of nobody, not even of itself."""
    said = record(node)
    assert said == {
        "now": node.us, "id": f"{FRESH}-{node.us}", "ttl": 10_000, "origin": "", "founding": "", "grace": 0,
        "charter": "", "stepped": "", "heard": {},
    }  # fmt: skip
    assert fields(node) == as_new(node.us)
    assert node.tells_the_client_of(KEY) == [KEY]


def test_the_id_stays(node):
    """As long as the same process answers."""
    first = record(node, "joined")["id"]
    node.after(5_000)
    assert record(node, fresh="f" * 16)["id"] == first
    assert record(node, replicated=1, fresh="f" * 16)["id"] == first
    assert fields(node)["server"] == RUN
    assert record(node)["origin"] == "joined"


def test_a_client_that_was_not_told_the_run_id_changes_no_id(node):
    """It cannot know whether it is another process; and the run id that is known is kept."""
    first = record(node)["id"]
    assert record(node, run="", fresh="f" * 16)["id"] == first
    assert fields(node)["server"] == RUN


def test_a_process_that_loaded_every_write_keeps_its_id(node):
    """And the next one is compared with it."""
    first = record(node, "joined", durable=1)
    node.after(5_000)
    again = record(node, run=NEXT_RUN, durable=1, fresh="f" * 16)
    assert (again["id"], again["origin"], again["grace"]) == (first["id"], "joined", 0)
    assert fields(node)["server"] == NEXT_RUN
    assert record(node, run=RUN, durable=1, fresh="f" * 16)["id"] == first["id"]
    assert fields(node)["server"] == RUN


def test_a_process_that_may_lack_writes_has_other_data(node):
    """Its id is new and it has not voted; what it has heard of others, and the longest ttl, are still true."""
    first = record(node, "founding", "other", "a", founding="x y", ttl=20_000)["id"]
    node.after(5_000)
    again = record(node, run=NEXT_RUN, fresh="f" * 16)
    assert again == {
        "now": node.us, "id": f"{'f' * 16}-{node.us}", "ttl": 20_000, "origin": "", "founding": "", "grace": 0,
        "charter": "", "stepped": "", "heard": {"other": (5_000_000, "a")},
    }  # fmt: skip
    assert again["id"] != first
    assert fields(node)["server"] == NEXT_RUN
    # Only once.
    node.after(5_000)
    assert record(node, run=NEXT_RUN)["id"] == again["id"]


def test_a_first_run_id_is_no_other_process(node):
    """A client that was not told it came first."""
    first = record(node, "joined", run="")["id"]
    assert fields(node)["server"] == ""
    assert record(node, fresh="f" * 16)["id"] == first
    assert fields(node)["server"] == RUN


def test_the_fence_registers_of_other_data_start_again(node):
    """They may be old: tokens go on from the node's clock instead. All of them, and nothing else."""
    tags = ("@@@@", "@@@O", "@@O@", "@O@@", "@OOO", "A@@@", "BHIJ", "C@@@", "COO@", "COON", "COOO")
    registers = [f"{PREFIX}fence:{{{tag}}}" for tag in tags]
    wrong = ("D@@@", "@P@@", "@@P@", "@@@P", "?@@@", "@?@@", "@@?@", "@@@?")
    others = [
        "lock",
        "redlock-async:fence:{@@@@}",
        f"{PREFIX}queue:{{x}}",
        *(f"{PREFIX}fence:{{{tag}}}" for tag in wrong),
    ]

    def left():
        return {key for key in node.holds if key != KEY}

    def fill():
        for key in (*registers, *others):
            node.do("SET", key, 7)

    record(node, durable=1)
    fill()
    record(node, run=NEXT_RUN, durable=1)
    assert left() == {*registers, *others}
    record(node, run=RUN)
    assert left() == set(others)
    fill()
    record(node, run=RUN)
    assert left() == {*registers, *others}


# Replicas


def test_a_promoted_replica_has_other_data(node):
    """Although it loads every write: the old primary may have granted locks that it was not sent, and for a while
    longer.
    """
    first = record(node, "joined", durable=1)["id"]
    again = record(node, run=NEXT_RUN, replicated=1, durable=1, fresh="f" * 16)
    assert (again["id"], again["origin"], again["grace"]) == (f"{'f' * 16}-{node.us}", "", 10_000)
    assert again["id"] != first
    assert fields(node)["replicated"] == "1"


def test_a_node_that_once_had_replicas_may_be_one_of_them(node):
    """Its data says so, also when the server does not."""
    record(node, "joined", replicated=1, durable=1)
    assert fields(node)["replicated"] == "1"
    again = record(node, run=NEXT_RUN, durable=1, grace=7_000, fresh="f" * 16)
    assert (again["id"], again["grace"]) == (f"{'f' * 16}-{node.us}", 7_000)


def test_a_grace_ends_with_the_next_process_that_is_no_replica(node):
    """The quarantine of a mere restart is shorter."""
    record(node)
    node.do("HSET", KEY, "grace", 10_000)
    assert record(node)["grace"] == 10_000
    assert record(node, run=NEXT_RUN)["grace"] == 0


def test_that_it_has_replicas_is_written_once(node):
    """Each change is reported to every client."""
    record(node, replicated=1)
    node.watch(KEY)
    record(node, replicated=1)
    assert node.told() == []


# The longest ttl


def test_the_longest_ttl_is_only_written_when_it_grows(node):
    record(node, ttl=1)
    assert record(node, ttl=10_000)["ttl"] == 10_000
    node.watch(KEY)
    assert record(node, ttl=10_000)["ttl"] == record(node, ttl=7_000)["ttl"] == 10_000
    assert node.told() == []
    assert record(node, ttl=20_000)["ttl"] == 20_000
    assert node.told() == [KEY]
    node.do("HSET", KEY, "ttl", "spoilt")
    assert look(node)["ttl"] == 0
    assert record(node, ttl=1)["ttl"] == 1


# Origin


def test_a_cluster_is_founded_in_two_steps(node):
    """First the node agrees on the ids, then all have agreed."""
    said = record(node, "founding", founding="x y")
    assert (said["origin"], said["founding"]) == ("founding", "x y")
    said = record(node, "founded", "x", "f", founding="x y")
    assert (said["origin"], said["founding"], said["heard"]) == ("founded", "x y", {"x": (0, "f")})
    # Another client says so as well.
    said = record(node, "founded", "y", "f", founding="x y")
    assert (said["origin"], said["heard"]) == ("founded", {"x": (0, "f"), "y": (0, "f")})


def test_a_node_agrees_on_other_ids_until_it_is_founded(node):
    record(node, "founding", founding="x y")
    assert record(node, "founding", founding="x z")["founding"] == "x z"
    record(node, "founded", founding="x z")
    said = record(node, "founding", founding="x y")
    assert (said["origin"], said["founding"]) == ("founded", "x z")


def test_a_node_is_not_founded_with_ids_on_which_it_does_not_agree(node):
    """And then it notes nobody as a founder: it only knows them."""
    for agreed in ("", "x z"):
        node.do("DEL", KEY)
        if agreed:
            record(node, "founding", founding=agreed)
        said = record(node, "founded", "x", "f", "y", "a", founding="x y")
        assert said["origin"] == ("founding" if agreed else "")
        assert said["heard"] == {"x": (0, "-"), "y": (0, "-")}


def test_a_node_that_joined_is_not_founded(node):
    record(node, "founding", founding="x y")
    assert record(node, founding="x y")["origin"] == "founding"
    assert record(node, "joined", founding="x y")["origin"] == "joined"
    said = record(node, "founding", founding="x y")
    assert said["origin"] == "joined"
    said = record(node, "founded", "x", "f", founding="x y")
    assert (said["origin"], said["heard"]) == ("joined", {"x": (0, "-")})


def test_a_founder_of_other_ids_notes_no_founders(node):
    """It is founded, but not with these."""
    record(node, "founding", founding="x y")
    record(node, "founded", founding="x y")
    said = record(node, "founded", "z", "f", founding="x z")
    assert (said["origin"], said["founding"], said["heard"]) == ("founded", "x y", {"z": (0, "-")})


def test_a_founder_stays_a_founder(node):
    """A client that let it vote for another reason does not take that from it."""
    record(node, "founding", founding="x y")
    record(node, "founded", founding="x y")
    assert record(node, "joined")["origin"] == "founded"


def test_a_new_node_joins(node):
    assert record(node, "joined")["origin"] == "joined"
    assert record(node)["origin"] == "joined"


# The others


def test_a_node_notes_when_it_first_heard_of_an_id(node):
    """By its own clock."""
    assert record(node, "", "x", "-")["heard"] == {"x": (0, "-")}
    node.after(3_000)
    assert record(node, "", "x", "-", "y", "a")["heard"] == {"x": (3_000_000, "-"), "y": (0, "a")}
    assert fields(node)["node:x"] == f"{node.us - 3_000_000} -"
    node.watch(KEY)
    record(node, "", "x", "-", "y", "a")
    assert node.told() == []


def test_a_standing_only_rises(node):
    """Known, founder, admitted; since when it is known stays."""
    order = "-fa"
    for before in order:
        for said in order:
            node.do("DEL", KEY)
            record(node, "", "x", before)
            node.after(1_000)
            node.watch(KEY)
            heard = record(node, "", "x", said)["heard"]
            rises = order.index(said) > order.index(before)
            assert heard == {"x": (1_000_000, said if rises else before)}, (before, said)
            assert node.told() == [KEY] * rises


def test_what_is_malformed_is_not_heard_of(node):
    """It is written anew."""
    for spoilt in ("", "soon -", "12", "12 -f", "12 ", " 12 -", "-5 a"):
        node.do("HSET", KEY, "id", "own", "node:x", spoilt, "node:", "12 a", "other:y", "12 a")
        assert look(node)["heard"] == {}, spoilt
        assert record(node, "", "x", "-")["heard"] == {"x": (0, "-")}


def test_of_more_than_a_hundred_ids_the_oldest_are_forgotten(node):
    """But none that the client names; a look forgets nothing."""
    record(node)
    ages = {f"id {number}": number * 1_000 for number in range(101)}  # the higher the number, the older
    for each, age in list(ages.items())[:100]:
        node.do("HSET", KEY, f"node:{each}", f"{node.us - age * 1_000} -")
    assert len(record(node)["heard"]) == 100
    node.do("HSET", KEY, "node:id 100", f"{node.us - 100_000_000} -")
    assert len(look(node)["heard"]) == 101
    left = record(node, "", "id 77", "-", "id 100", "-")["heard"]
    assert set(left) == {*(f"id {number}" for number in range(50)), "id 77", "id 100"}
    assert {f"node:{each}" for each in left} == {name for name in fields(node) if name.startswith("node:")}
    assert left["id 77"] == (77_000_000, "-")
    node.watch(KEY)
    assert record(node)["heard"] == left
    assert node.told() == []


# A node that refuses writes


def test_a_full_node_reports_what_it_has_recorded(node):
    """A new one reports nothing: it has no id that a client could rely on."""
    node.master.oom = True
    said = record(node, "joined", "x", "a")
    assert said == {
        "now": node.us,
        "id": "",
        "ttl": 0,
        "origin": "",
        "founding": "",
        "grace": 0,
        "charter": "",
        "stepped": "",
        "heard": {},
    }
    assert node.holds == {}
    node.master.oom = False
    first = record(node, "", "x", "-")
    node.master.oom = True
    assert record(node, "founding", "x", "a", "y", "a", founding="x y", ttl=20_000) == first


# The charter: the configuration on which clients agree

THREE = "0 2 a b c"


def test_the_first_charter_is_recorded(node):
    """Also on a node that does not vote yet; a client with another one at the same epoch does not replace it."""
    assert record(node, charter=THREE)["charter"] == THREE
    assert fields(node)["charter"] == THREE
    node.watch(KEY)
    assert record(node, charter="0 3 a b c d e")["charter"] == THREE
    assert record(node, charter=THREE)["charter"] == THREE
    assert record(node)["charter"] == THREE
    assert node.told() == []


def test_a_look_records_no_charter(node):
    """Neither on a new node nor on one with a record."""
    assert look(node)["charter"] == ""
    assert record(node, "read", charter=THREE)["charter"] == ""
    record(node, "joined")
    assert record(node, "read", charter=THREE)["charter"] == ""
    assert "charter" not in fields(node)


def test_a_charter_replaces_an_older_one(node):
    """Epochs are numbers: 10 comes after 9. An older one changes nothing."""
    for stored, said, kept in (
        ("9 2 a b c", "10 3 a b c d", "10 3 a b c d"), ("10 3 a b c d", "9 2 a b c", "10 3 a b c d"),
        ("nothing", THREE, THREE),
    ):  # fmt: skip
        node.do("HSET", KEY, "id", "own", "charter", stored)
        assert record(node, charter=said)["charter"] == kept, (stored, said)


def test_a_client_that_cannot_found_the_cluster_records_no_charter(node):
    """Another one has founded it with other nodes meanwhile, and its charter is the one that counts."""
    record(node, "founding", founding="x y z")
    assert record(node, "founded", "x", "f", founding="v w x", charter="0 2 e f g")["charter"] == ""
    assert record(node, "founded", "x", "f", founding="x y z", charter=THREE)["charter"] == THREE


def test_a_node_that_may_lack_writes_keeps_its_charter(node):
    """It says how the clients are configured, and nothing about leases; it may be an old one."""
    record(node, "joined", charter=THREE)
    assert record(node, run=NEXT_RUN, replicated=1)["charter"] == THREE
    assert record(node, charter="1 3 a b c d")["charter"] == "1 3 a b c d"


def test_a_node_that_has_moved_records_its_new_place(node):
    """In the charter that it has, whose age stays."""
    record(node, "joined", charter="9 2 a b c @ a")
    node.after(5_000)
    for other in ("8 2 a b c @ b", "", "9 2 a b c @ b"):
        stored = record(node, "moved", charter=other)["charter"]
    assert stored == "9 2 a b c @ b"
    assert record(node, charter="9 2 a b c @ c")["charter"] == "9 2 a b c @ b"
    assert record(node)["origin"] == "joined"
    assert chartered(node)[1] == 5_000_000
    assert record(node, "moved", charter="8 2 a b c @ b")["charter"] == "9 2 a b c @ b"


def test_a_full_node_reports_its_charter(node):
    """And cannot record another."""
    record(node, "joined", charter=THREE)
    node.master.oom = True
    assert record(node, charter="1 3 a b c d")["charter"] == THREE


def chartered(node, charter="", read=-1):
    """Run node_charter.lua; return the charter, its age in µs, and the longest ttl."""
    now, stored, since, ttl = node.run("node_charter", (KEY,), charter, read)
    assert now == node.us
    return stored, now - since, ttl


def test_reading_a_charter_changes_nothing(node):
    """Neither on a new node nor on one with a charter; its age counts from when it was recorded."""
    assert chartered(node) == ("", node.us, 0)
    assert node.holds == {}
    record(node, charter=THREE)
    node.after(5_000)
    before = node.holds
    assert chartered(node) == (THREE, 5_000_000, 10_000)
    assert node.holds == before


def test_an_operator_replaces_a_charter(node):
    """The first one, and the one that was read. Clients are notified."""
    assert chartered(node, "9 2 a b c @ a") == ("9 2 a b c @ a", 0, 0)
    record(node)
    node.after(5_000)
    node.watch(KEY)
    assert chartered(node, "10 2 a b c | 3 a b c d", 9) == ("10 2 a b c | 3 a b c d", 0, 10_000)
    assert node.told() == [KEY]
    # A client that repairs a node that was down begins its age.
    node.after(1_000)
    assert record(node, charter="11 3 a b c d")["charter"] == "11 3 a b c d"
    assert chartered(node)[1] == 0


def test_an_operator_does_not_replace_what_was_not_read(node):
    """Another one has changed it meanwhile."""
    record(node, charter="9 2 a b c")
    node.watch(KEY)
    for read in (-1, 8, 10, 90):
        assert chartered(node, "12 3 a b c d", read)[0] == "9 2 a b c"
    assert node.told() == []


def test_sets_that_are_recorded_again_keep_their_age(node):
    """An operator who claims a change records them under a new epoch."""
    record(node, charter="9 2 a b c @ a")
    node.after(5_000)
    assert chartered(node, "20 2 a b c @ a", 9) == ("20 2 a b c @ a", 5_000_000, 10_000)
    assert chartered(node, "21 2 a b d @ a", 20)[1] == 0


# Clocks

CLOCKS = f"{PREFIX}clocks"


def clocks(node, *notes):
    """What the node notes of others, after these notes were made."""
    now, noted = node.run("node_clocks", (CLOCKS,), *notes)
    assert now == node.us
    return dict(zip(noted[::2], noted[1::2], strict=True))


def test_reading_the_clocks_leaves_no_trace(node):
    assert clocks(node) == {}
    assert node.holds == {}


def test_a_node_keeps_notes_of_other_clocks(node):
    """A later note replaces an earlier one."""
    assert clocks(node, "one", "1 -7 900", "two", "2 3 4") == {"one": "1 -7 900", "two": "2 3 4"}
    assert clocks(node, "one", "5 8 1") == {"one": "5 8 1", "two": "2 3 4"}
    assert clocks(node) == {"one": "5 8 1", "two": "2 3 4"}


def test_a_full_node_reports_its_clock(node):
    """It can still be compared with others."""
    clocks(node, "one", "1 2 3")
    node.master.oom = True
    assert clocks(node, "two", "3 4 5") == {"one": "1 2 3"}


def test_notes_of_more_than_a_hundred_ids_are_made_again(node):
    """Most of the ids are gone, and the others are soon noted again."""
    for number in range(100):
        clocks(node, f"id {number}", "1 2 3")
    assert len(clocks(node)) == 100
    assert len(clocks(node, "one more", "1 2 3")) == 101
    assert clocks(node) == {}


def test_notes_are_only_forgotten_when_others_are_made(node):
    """A reader changes nothing."""
    node.do("HSET", CLOCKS, *(word for number in range(150) for word in (f"id {number}", "1 2 3")))
    assert len(clocks(node)) == len(clocks(node)) == 150


def test_a_node_whose_clock_was_stepped_has_other_data(node):
    """Its id is new and it has not voted. What it has heard of others stays, its notes of their clocks do not."""
    first = record(node, "joined", "other", "a", ttl=20_000)["id"]
    node.do("HSET", f"{PREFIX}fence:3", "not", "deleted")
    clocks(node, "other", "1 2 3")
    node.after(5_000)
    again = record(node, fresh="f" * 16, stepped=f"{first} -60000")
    assert again == {
        "now": node.us, "id": f"{'f' * 16}-{node.us}", "ttl": 20_000, "origin": "", "founding": "", "grace": 0,
        "charter": "", "stepped": "-60000", "heard": {"other": (5_000_000, "a")},
    }  # fmt: skip
    assert CLOCKS not in node.holds
    assert f"{PREFIX}fence:3" in node.holds
    assert record(node)["stepped"] == "-60000"


def test_a_step_of_an_earlier_id_changes_nothing(node):
    """Several clients report a step."""
    first = record(node, "joined")["id"]
    second = record(node, fresh="f" * 16, stepped=f"{first} 60000")["id"]
    record(node, "joined")
    before = node.holds
    for late in (f"{first} 60000", f"{second[:-1]} 60000", " 60000"):
        assert record(node, fresh="e" * 16, stepped=late)["id"] == second
    assert node.holds == before


def test_a_step_counts_once_a_founding_is_over(node):
    """A node that agrees to found a cluster agrees no more."""
    first = record(node, "founding", founding="x y")["id"]
    again = record(node, "founded", founding="x y", stepped=f"{first} 60000", fresh="f" * 16)
    assert (again["origin"], again["founding"]) == ("", "")


def test_a_step_is_not_the_reason_for_the_next_id(node):
    """Then the node has lost its data."""
    first = record(node, "joined")["id"]
    second = record(node, fresh="f" * 16, stepped=f"{first} 60000")["id"]
    clocks(node, "other", "1 2 3")
    again = record(node, run=NEXT_RUN, fresh="e" * 16)
    assert again["id"] != second
    assert again["stepped"] == ""
    assert CLOCKS not in node.holds


def test_a_step_does_not_end_a_grace(node):
    """Another server may still grant leases in this node's place."""
    record(node, "joined")
    moved = record(node, run=NEXT_RUN, replicated=1, fresh="f" * 16)
    assert moved["grace"] == 10_000
    again = record(node, run=NEXT_RUN, fresh="e" * 16, stepped=f"{moved['id']} 60000")
    assert again["grace"] == 10_000


# Shards of a cluster


def shard(node, *slots, place="primary"):
    """Let the node be a shard that owns these ranges of slots."""
    node.master.shard = (place.encode(), slots)


def noted(node, *arguments, **others):
    """Run the script on the record of a shard; return what is stored of its slots, and of its id."""
    said = record(node, *arguments, key=SHARD, **others)
    stored, ttl = node.holds[SHARD]
    assert ttl is None
    assert [said.get(field, "") for field in MOVES] == [stored.get(field, "") for field in MOVES]
    assert (said["id"], said["grace"], said["origin"]) == (stored["id"], int(stored["grace"]), stored["origin"])
    return {field: stored.get(field, "") for field in ("place", *MOVES)} | {"id": said["id"][:16]}


def test_a_new_shard_has_all_data_of_its_slots(node):
    """Nothing came from another one. The record tells its clients nothing more until something changes."""
    shard(node, (0, 5460), (5462, 5462), (16383, 16383))
    slots = {"place": "primary", "slots": "0-5460,5462-5462,16383-16383", "arrived": "", "left": "", "id": FRESH}
    assert noted(node) == slots
    node.watch(SHARD)
    assert noted(node, fresh="f" * 16) == slots
    assert noted(node, "read", fresh="f" * 16) == slots
    assert node.told() == []


def test_slots_that_come_and_go_are_noted_with_the_time(node):
    """Those that go had all their data; those that came and go again may lack some."""
    shard(node, (0, 10))
    noted(node)
    node.after(1_000)
    came = node.us
    shard(node, (0, 12), (14, 14))
    assert noted(node)["arrived"] == f"{came}:11-12,14-14"
    node.after(1_000)
    went = node.us
    shard(node, (0, 3), (6, 11), (14, 14), (20, 20))
    slots = noted(node)
    assert slots["slots"] == "0-3,6-11,14-14,20-20"
    assert slots["arrived"] == f"{came}:11-11,14-14 {went}:20-20"
    assert slots["left"] == f"{went}:4-5"
    node.after(1_000)
    shard(node, (0, 4), (6, 11), (14, 14))
    slots = noted(node)
    assert slots["arrived"] == f"{came}:11-11,14-14 {node.us}:4-4"
    assert slots["left"] == f"{went}:5-5"
    assert slots["id"] == FRESH
    shard(node, (0, 4))
    assert noted(node)["arrived"] == f"{node.us}:4-4"
    assert noted(node)["left"] == f"{went}:5-5 {node.us}:6-10"


def test_a_client_that_only_reads_notes_no_moves(node):
    """It leaves no trace, and sees what others have noted."""
    shard(node, (0, 10))
    noted(node)
    shard(node, (0, 12))
    assert noted(node, "read")["slots"] == "0-10"


def test_a_move_from_a_shard_with_all_data_is_forgotten(node):
    """By its time: another move of the same slots stays, and so do slots that were not named."""
    shard(node, (0, 10))
    noted(node)
    first = node.us
    shard(node, (0, 15))
    assert noted(node)["arrived"] == f"{first}:11-15"
    node.after(1)
    second = node.us
    shard(node, (0, 17))
    assert (
        noted(node, "kept", founding=f"{first + 7}:11-15 {second + 1}:16-16")["arrived"]
        == f"{first}:11-15 {second}:16-17"
    )
    kept = noted(node, "kept", founding=f"{first}:12-13,15-16 {second}:17-17")
    assert kept["arrived"] == f"{first}:11-11,14-14 {second}:16-16"
    assert noted(node, "", founding=f"{first}:11-14")["arrived"] == kept["arrived"]
    node.after(1)
    shard(node, (0, 13))
    # What was vouched for goes with all data.
    assert noted(node)["left"] == f"{node.us}:15-15,17-17"


def test_another_primary_of_a_shard_has_other_data(node):
    """A promoted replica has another id in the cluster, and the record of the old primary. So it is for a slot that
    came with the record of another shard, even if the server is the same and loads every write.
    """
    shard(node, (0, 10))
    noted(node, "joined", durable=1)
    shard(node, (0, 12))
    noted(node, durable=1)
    shard(node, (0, 5), place="replica")
    registers = [f"{PREFIX}fence:{{{tag}}}" for tag in ("@@@@", "BHIJ", "COOO")]
    for key in (*registers, f"{PREFIX}clocks:{{@ABC}}", f"{PREFIX}clocks"):
        node.do("HSET", key, "a", "1")
    said = record(node, key=SHARD, durable=1, fresh="f" * 16)
    assert (said["id"][:16], said["grace"], said["origin"]) == ("f" * 16, 10_000, "")
    assert {*node.holds} == {SHARD, f"{PREFIX}clocks"}
    assert noted(node) == {"place": "replica", "slots": "0-5", "arrived": "", "left": "", "id": "f" * 16}


def test_a_shard_that_comes_back_with_its_data_is_the_same(node):
    """As a node that is no cluster: another process of the same server, which loads every write."""
    shard(node, (0, 10))
    noted(node)
    assert noted(node, run=NEXT_RUN, durable=1, fresh="f" * 16)["id"] == FRESH
    assert noted(node, run=RUN, fresh="f" * 16)["id"] == "f" * 16


def test_a_new_record_of_a_shard_with_replicas_waits_for_the_old_primary(node):
    """It may be that of a promoted replica to which the old record was not copied."""
    shard(node, (0, 10))
    assert record(node, key=SHARD, replicated=1)["grace"] == 10_000
    assert record(node, replicated=1)["grace"] == 0


def test_a_shard_whose_clock_was_stepped_has_all_slots_anew(node):
    """Its new id says that its data may lack something; moves of before do not matter any more."""
    shard(node, (0, 10))
    first = record(node, key=SHARD)["id"]
    shard(node, (0, 12))
    noted(node)
    slots = noted(node, fresh="f" * 16, stepped=f"{first} 60000")
    assert slots == {"place": "primary", "slots": "0-12", "arrived": "", "left": "", "id": "f" * 16}
