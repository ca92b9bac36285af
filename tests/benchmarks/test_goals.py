"""Whether a goal is reached is read from the rounds, and a goal that nothing is known of is not reached in silence."""

import pytest
from bench_samples import P50, RATE, record, run

from benchmarks import goals
from benchmarks.contenders import BY_NAME as CONTENDERS
from benchmarks.goals import GOALS, Goal, judge
from benchmarks.report import Report
from benchmarks.scenarios import BY_NAME as SCENARIOS

MOST = Goal("latency", "one", "ours", "p50", 1.25, "x floor", "floor")
LEAST = Goal("rate", "many", "ours", "rate", 12, "x aioredlock", "aioredlock", at_least=True)
ALONE = Goal("alone", "one", "ours", "p50", 50, "ms")
ALWAYS = Goal("always", "one", "ours", "p50", 50, "ms", always=True)
ALWAYS_LEAST = Goal("always", "one", "ours", "p50", 50, "s", at_least=True, always=True)


@pytest.mark.parametrize("goal", GOALS, ids=lambda goal: f"{goal.what}: {goal.text}")
def test_every_goal_can_be_measured(goal):
    """Its scenario, contender and figure are there under those names, and it is run with them by default."""
    scenario = SCENARIOS[goal.scenario]
    contender = CONTENDERS[goal.contender]
    assert goal.figure in {figure.key for figure in scenario.figures}
    assert scenario.fits(contender)
    for name in {goal.contender, goal.against} - {None}:
        assert scenario.usual is None or name in scenario.usual
        assert name in CONTENDERS
    if goal.against is not None and goal.against.startswith("floor"):
        assert goal.against == contender.floor


@pytest.mark.parametrize(
    ("goal", "ours", "other", "reached"),
    [
        (MOST, [120, 130, 120], [100, 100, 100], True),
        (MOST, [120, 130, 140], [100, 100, 100], False),
        (MOST, [125], [100], True),
        (MOST, [130, 1000, 120], [100, 1000, 100], True),  # what disturbed the second round disturbed both
        (ALONE, [49, 50, 700], [], True),
        (ALONE, [49, 51, 700], [], False),
        (ALWAYS, [49, 50, 700], [], False),
        (ALWAYS, [49, 50, 50], [], True),
        (ALWAYS_LEAST, [49, 50, 700], [], False),
        (ALWAYS_LEAST, [50, 51, 700], [], True),
    ],
)
def test_the_median_decides_unless_every_round_must(goal, ours, other, reached):
    """Of the rounds' own ratios, where there is something to divide by."""
    (verdict,) = judge(Report(run(record("one", "ours", P50, ours), record("one", "floor", P50, other))), [goal])
    assert verdict.reached is reached


def test_at_least_is_the_other_way_round():
    """Against whom it says, which need not be the floor."""
    for rate, reached in ((1200, True), (1199, False)):
        report = Report(run(record("many", "ours", RATE, [rate]), record("many", "aioredlock", RATE, [100])))
        (verdict,) = judge(report, [LEAST])
        assert verdict.reached is reached


@pytest.mark.parametrize(
    ("records", "why"),
    [
        ([], "one with ours was not run"),
        ([record("one", "ours", P50, [], missing="no server binary")], "no server binary"),
        ([record("one", "ours", P50, [1.0])], "no round of one has p50 of both ours and floor"),
    ],
)
def test_what_was_not_measured_says_why(records, why):
    """It counts neither as reached nor as missed."""
    (verdict,) = judge(Report(run(*records)), [MOST])
    assert verdict.reached is None
    assert verdict.why_not == why
    assert goals.summary([verdict]) == "0 of 0 goals reached, 1 not measured"


def test_the_table_marks_only_what_was_missed():
    """As a reader looks for it."""
    report = Report(run(record("one", "floor", P50, [100]), record("one", "ours", P50, [130])))
    table = goals.as_table(judge(report, [MOST, ALONE, LEAST])).splitlines()
    assert table[1] == "goals: 0 of 2 goals reached, 1 not measured"
    assert [line.split()[-1] for line in table[3:]] == ["missed", "missed", "-"]
    assert "1.30" in table[3]
