"""Two runs beside each other: what is a difference, what is not, and when a guard fails."""

import pytest
from bench_samples import P50, RATE, record, run

from benchmarks import compare, store
from benchmarks.compare import Change, rows, warnings
from benchmarks.report import Report, Spread


def change(a, b, *, more_is_better=False):
    """From those rounds to those."""
    return Change(Spread.of(a), Spread.of(b), more_is_better)


@pytest.mark.parametrize(
    ("a", "b", "more_is_better", "mark"),
    [
        ([10, 11, 12], [13, 14, 15], False, "worse"),
        ([10, 11, 12], [13, 14, 15], True, "better"),
        ([13, 14, 15], [10, 11, 12], False, "better"),
        ([13, 14, 15], [10, 11, 12], True, "worse"),
        ([10, 11, 12], [12, 14, 15], False, ""),  # the spreads touch
        ([10, 11, 99], [50, 51, 52], False, ""),  # five times as dear, and yet within a spread
        ([10, 11, 12], [10, 11, 12], False, ""),
        ([10, 11], [13, 14, 15], False, ""),  # two rounds are no spread
        ([10], [99], False, ""),
    ],
)
def test_only_a_difference_beyond_both_spreads_is_marked(a, b, more_is_better, mark):
    """For what should be low and for what should be high."""
    assert change(a, b, more_is_better=more_is_better).mark == mark


def test_dearer_is_the_ratio_turned_over_for_a_rate():
    """Half the rate is twice as dear."""
    assert change([10], [20]).dearer == 2
    assert change([10], [5], more_is_better=True).dearer == 2
    assert change([0], [5]).ratio is None


def test_the_ratio_to_the_floor_outlives_a_change_of_machine():
    """Everything is twice as slow there, and nothing has changed."""
    a = run(record("one", "floor", P50, [100, 101, 102]), record("one", "ours", P50, [120, 121, 122]))
    b = run(record("one", "floor", P50, [200, 202, 204]), record("one", "ours", P50, [240, 242, 244]))
    floor, ours = rows(Report(a), Report(b))
    assert (floor.change.mark, floor.floor) == ("worse", None)
    assert ours.change.mark == "worse"
    assert ours.floor.mark == ""
    assert ours.floor.ratio == pytest.approx(1)


def test_what_only_one_run_has_is_left_out():
    """A scenario that is new has nothing to be held against."""
    a = run(record("one", "ours", P50, [1, 2, 3]), record("old", "ours", P50, [1]))
    b = run(record("one", "ours", P50, [1, 2, 3]), record("new", "ours", P50, [1]), record("one", "floor", P50, [1]))
    assert [(row.b.scenario, row.b.contender) for row in rows(Report(a), Report(b))] == [("one", "ours")]


def test_what_else_differs_is_said():
    """It could be the cause."""
    peer = record("one", "aioredlock", P50, [1], contender_title="aioredlock 0.7.3")
    newer = record("one", "aioredlock", P50, [1], contender_title="aioredlock 0.8")
    after = {"machine": "another", "server": "Redis 8.0", "libraries": {"redis": "9.0", "hiredis": "3.5.0"}}
    assert list(warnings(run(peer), run(newer, **after, interrupted=True))) == [
        "machine differs: a processor in A, another in B",
        "server differs: Valkey 9.1.2 in A, Redis 8.0 in B",
        "redis differs: 8.1.0 in A, 9.0 in B",
        "aioredlock differs: aioredlock 0.7.3 in A, aioredlock 0.8 in B",
        "B was interrupted",
    ]
    assert list(warnings(run(peer), run(peer, commit="another", date="later", load=5.0))) == []


# -- the command ------------------------------------------------------------------------------------------------------

FLOOR = record("one", "floor", P50, [100, 100, 100])
ONE_ROUND = run(record("one", "floor", P50, [1]), record("one", "ours", P50, [9]))
CHEAP = run(FLOOR, record("one", "ours", P50, [110, 112, 114]))
DEARER = run(FLOOR, record("one", "ours", P50, [160, 165, 170]))


@pytest.fixture
def command(tmp_path):
    """`compare` of two runs, or of two files."""

    def compared(a, b, *options):
        files = []
        for name, each in (("a", a), ("b", b)):
            store.write(tmp_path / f"{name}.json", Report(each).as_json())
            files.append(str(tmp_path / f"{name}.json"))
        return compare.main([*files, *options])

    return compared


def test_a_difference_is_no_failure_unless_it_is_asked_for(command, capsys):
    """It is shown, marked, within 80 columns."""
    assert command(CHEAP, DEARER) == 0
    out = capsys.readouterr().out
    assert "ours         p50       112 (110-114)       165 (160-170)         1.47 worse" in out
    assert "x floor 1.12 (1.10-1.14)    1.65 (1.60-1.70)      1.47 worse" in out
    assert "1 of 2 figures differ beyond both spreads" in out
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.parametrize("scale", [0.00123, 0.0123, 1.23, 123, 12_345, 1_234_567])
def test_no_line_is_wider_than_80_columns(command, capsys, scale):
    """Whatever the figures are."""
    rounds = [scale * part for part in (1, 1.01, 1.02)]
    slow = [scale * part for part in (7, 8, 8.1)]
    floor = record("one", "floor-plain", P50, [1.0, 1.0, 1.0])
    a, b = (run(floor, record("one", "aioredlock", P50, each)) for each in (rounds, slow))
    assert command(a, b) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    assert out.count("worse") == 2


@pytest.mark.parametrize(("factor", "status"), [("1.3", 1), ("1.47", 1), ("1.5", 0)])
def test_fail_above_is_by_the_ratio_to_the_floor(command, capsys, factor, status):
    """And by how much dearer that has become."""
    assert command(CHEAP, DEARER, "--fail-above", factor) == status
    assert ("ours in one, p50: 1.47 times as dear, 1.12 -> 1.65 x floor" in capsys.readouterr().err) == bool(status)


def test_fail_above_does_not_fail_for_a_slower_machine(command):
    """Nor when the same run is held against itself."""
    slower = run(record("one", "floor", P50, [200] * 3), record("one", "ours", P50, [220, 224, 228]))
    assert command(CHEAP, slower, "--fail-above", "1.01") == 0
    assert command(CHEAP, CHEAP, "--fail-above", "1") == 0


def test_fail_above_fails_for_a_rate_that_has_sunk(command):
    """Where more is better, less is dear."""
    floor = record("many", "floor", RATE, [1000] * 3)
    fast = run(floor, record("many", "ours", RATE, [800, 810, 820]))
    slow = run(floor, record("many", "ours", RATE, [500, 510, 520]))
    assert command(fast, slow, "--fail-above", "1.3") == 1
    assert command(slow, fast, "--fail-above", "1.3") == 0


def test_fail_above_fails_for_who_was_measured_and_now_fails(command, capsys):
    """A guard must not be content with what could not be measured."""
    two = run(FLOOR, record("one", "ours", P50, [110, 111, 112]), record("one", "ours-plain", P50, [110, 111, 112]))
    gone = run(
        FLOOR, record("one", "ours", P50, [110, 111, 112]), record("one", "ours-plain", P50, [], missing="it crashed")
    )
    assert command(two, gone) == 0
    assert command(two, gone, "--fail-above", "1.3") == 1
    assert "ours-plain in one was measured in A and has failed in B: it crashed" in capsys.readouterr().err
    assert command(two, gone, "--fail-above", "1.3", "--contender", "ours") == 0


@pytest.mark.parametrize(
    ("a", "b", "options", "said"),
    [
        (CHEAP, run(record("other", "ours", P50, [1])), (), "no figure in common"),
        (CHEAP, DEARER, ("--scenario", "nothing"), "no figure in common"),
        (CHEAP, run(record("one", "ours", P50, [1, 2, 3])), ("--fail-above", "1.3"), "nothing to go by"),
        (CHEAP, ONE_ROUND, ("--fail-above", "1.3"), "3 rounds"),
        (CHEAP, DEARER, ("--fail-above", "0.9"), "a factor of at least 1"),
        (CHEAP, DEARER, ("--fail-above", "dear"), "a factor of at least 1"),
    ],
)  # fmt: skip
def test_what_cannot_be_compared_ends_with_2(command, capsys, a, b, options, said):
    """One line, and never as a guard that passes."""
    with pytest.raises(SystemExit) as ended:
        command(a, b, *options)
    assert ended.value.code == 2
    err = capsys.readouterr().err
    assert said in err
    assert len(err.splitlines()) == 1


def test_a_file_that_is_no_run_ends_with_2(tmp_path, capsys):
    """Named, with what to do."""
    with pytest.raises(SystemExit) as ended:
        compare.main([str(tmp_path / "none.json"), str(tmp_path)])
    assert ended.value.code == 2
    assert f"cannot read {tmp_path / 'none.json'}" in capsys.readouterr().err
