"""What a run says in the terminal and in its file, and what its command does when it is used wrongly or stopped."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from bench_samples import P50, RATE, latencies, record, run

from benchmarks import goals, store
from benchmarks.report import Report, brief, short
from benchmarks.scenarios import SCENARIOS, Figure

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).resolve().parents[2]


def test_a_ratio_is_the_median_of_the_rounds_own_ratios():
    """A round in which the machine was slow for both counts as any other."""
    report = Report(run(record("one", "floor", P50, [100, 1000, 100]), record("one", "ours", P50, [150, 1200, 130])))
    (cell,) = report.cells(report.find("one", "ours"))
    assert (cell.spread.median, cell.spread.lowest, cell.spread.highest) == (150, 130, 1200)
    assert (cell.ratio.median, cell.ratio.lowest, cell.ratio.highest) == (1.3, 1.2, 1.5)


@pytest.mark.parametrize("useless", [None, "fast", True, float("nan"), float("inf")])
def test_a_round_without_the_figure_is_left_out_and_its_neighbour_keeps_its_own_partner(useless):
    """The third round is divided by the floor's third, whatever the second lacks."""
    report = Report(run(record("one", "floor", P50, [100, 50, 10]), record("one", "ours", P50, [200, useless, 30])))
    (cell,) = report.cells(report.find("one", "ours"))
    assert (cell.spread.lowest, cell.spread.highest) == (30, 200)
    assert (cell.ratio.lowest, cell.ratio.highest) == (2, 3)


def test_nothing_is_divided_by_a_floor_of_zero():
    """A floor without an error has none to be compared with."""
    report = Report(run(record("dying", "floor", P50, [0, 0]), record("dying", "ours", P50, [3, 0])))
    assert report.cells(report.find("dying", "ours"))[0].ratio is None


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "0"), (0.01234, "0.0123"), (0.5, "0.500"), (1, "1.00"), (12.345, "12.3"), (99.96, "100"), (123456, "123,000")],
)
def test_a_number_has_three_significant_digits(value, shown):
    """Whatever its size."""
    assert short(value) == shown


def test_a_long_number_gets_a_letter():
    """Only when it is longer than the caller has room for."""
    assert [brief(value) for value in (999_000, 20_000_000, 3e9)] == ["999,000", "20.0M", "3.00G"]
    assert [brief(value, 1e4) for value in (9_990, 12_345, 999_000, 2_000_000)] == ["9,990", "12.3k", "999k", "2.00M"]


def test_no_line_of_the_table_is_wider_than_80_columns():
    """Whichever scenario, and however slow a contender is."""
    slow = [123456789.0, 987654321.0, 1e9]
    records = [
        replace(record(scenario.name, "node-redlock", figure, slow), title=scenario.title, figures=(figure,))
        for scenario in SCENARIOS
        for figure in scenario.figures
    ]
    records.append(record("one", "aioredlock", P50, [], missing="no such thing: " + "x" * 300))
    report = Report(run(*records))
    lines = (report.as_table() + goals.as_table(goals.judge(report))).splitlines()
    assert [line for line in lines if len(line) > 80] == []
    assert any("123M .. 1.00G" in line for line in lines)


def test_those_with_the_same_reason_are_missing_in_one_line():
    """A secondary scenario fits few: the others are not to fill the screen."""
    both = [record("fair", name, P50, [], missing="it has no such thing") for name in ("floor", "redis-py")]
    table = Report(run(*both)).as_table()
    assert "missing: floor, redis-py: it has no such thing" in table


def test_a_run_is_read_as_it_was_written(tmp_path):
    """All of it: figures, rounds, distributions, reasons."""
    before = run(
        record("tasks-10", "floor", RATE, [1.5, 2.5], group="tasks", at=10, extra=latencies(100)),
        record("one", "ours", Figure("left", "what is left", "s"), [], missing='ends <with> "quotes" and µ'),
    )
    store.write(tmp_path / store.RESULTS, Report(before).as_json())
    assert store.read(str(tmp_path)) == store.read(str(tmp_path / store.RESULTS)) == before


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "cannot read"),
        ("", "is not JSON"),
        ("[]", "an object is expected, not list"),
        ("{}", "it has no 'about'"),
        ('{"about": 1, "results": []}', "is no run"),
        ('{"about": {}, "results": [{"scenario": 5}]}', "text is expected, not 5"),
        ('{"about": {}, "results": {"a": 1}}', "is no run"),
    ],
)
def test_what_is_no_run_is_named_with_a_remedy(tmp_path, text, said):
    """A wrong file is the user's to find."""
    path = tmp_path / "some.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(store.NoRun) as caught:
        store.read(str(path))
    assert str(path) in str(caught.value)
    assert said in str(caught.value)
    assert "python -m benchmarks --json FILE" in str(caught.value)


def test_a_write_that_fails_leaves_what_was_there(tmp_path):
    """Half a file would be worse than none."""
    path = tmp_path / "results.json"
    store.write(path, "before")
    with pytest.raises(UnicodeEncodeError):
        store.write(path, "lone surrogate \ud800")
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_what_a_run_is_about_names_this_machine(nodes):
    """Figures without a machine mean nothing."""
    about = store.about(cluster="embedded", urls=nodes, seconds=0.1, rounds=2)
    assert about["nodes"] == len(nodes)
    assert about["server"].split()[0] in {"Redis", "Valkey"}
    assert about["libraries"]["redis"]
    assert about["cpus"] == os.cpu_count()
    assert about["machine"]


@pytest.mark.parametrize(
    ("chosen", "kept"),
    [
        ("embedded", "embedded"),
        ("redis://one:6379,rediss://two", "redis://one:6379,rediss://two"),
        ("redis://:secret@one:6379,redis://me:secret@two/0", "redis://one:6379,redis://two/0"),
        ("redis://:secr@et@one,redis://two", "redis://one,redis://two"),
        ("redis://:sec/ret@one,redis://two", "redis://one,redis://two"),
        ("redis://one?password=secret", "redis://one"),
    ],
)
def test_passwords_are_not_kept(chosen, kept):
    """A page is shown to others."""
    assert store.without_secrets(chosen) == kept


def test_a_server_that_does_not_answer_is_unknown():
    """What it is is worth no failure."""
    assert store.server("redis://127.0.0.1:1") == "unknown"


# -- the command ------------------------------------------------------------------------------------------------------


def benchmarks(*arguments, **more):
    """The command, run to its end."""
    command = [sys.executable, "-m", "benchmarks", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False, **more)


def test_wrong_use_is_one_line_and_ends_with_2(tmp_path):
    """Before anything is measured, and with what is meant."""
    file = tmp_path / "file"
    file.touch()
    for arguments, said in (
        (["--scenario", "tasks-1O"], "no scenario 'tasks-1O': did you mean tasks-1"),
        (["--contender", "our"], "no contender 'our': did you mean ours"),
        (["--rounds", "0"], "--rounds must be at least 1"),
        (["--seconds", "nan"], "--seconds more than 0"),
        (["--report", file / "x"], f"cannot write to {file / 'x'}: Not a directory"),
        (["--report", file], f"cannot write to {file}: File exists"),
        (["--json", tmp_path], f"{tmp_path} is a directory"),
        (["--json", file / "x.json"], f"cannot write to {file}"),
        (["compare", file], "required: B"),
    ):
        ended = benchmarks(*arguments)
        assert (ended.returncode, ended.stdout) == (2, ""), arguments
        assert said in ended.stderr
        assert len(ended.stderr.splitlines()) == 1


def test_no_cluster_ends_with_1():
    """There is nothing wrong with the command."""
    ended = benchmarks("--cluster", "redis://127.0.0.1:1")
    assert ended.returncode == 1
    assert "redis://127.0.0.1:1" in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


def test_a_run_is_shown_kept_and_compared(nodes, tmp_path):
    """The whole way: table, file, page; then the file and the page's directory beside each other."""
    folder, file = tmp_path / "new" / "report", tmp_path / "run.json"
    ended = benchmarks(
        "--cluster", ",".join(nodes), "--scenario", "one", "--contender", "floor", "--contender", "ours",
        "--seconds", "0.02", "--rounds", "2", "--report", folder, "--json", file,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert f"{folder / 'index.html'}" in ended.stderr
    assert "one task: acquire + release" in ended.stdout
    assert "goals:" in ended.stdout
    assert {path.name for path in folder.iterdir()} == {"index.html", "results.json"}
    kept = json.loads(file.read_text("utf-8"))
    assert [result["contender"] for result in kept["results"]] == ["floor", "ours"]
    assert len(kept["results"][1]["rounds"]) == 2
    assert kept["results"][1]["figures"]["p50"]["times_floor"] > 0
    compared = benchmarks("compare", file, folder)
    assert compared.returncode == 0
    assert "B / A" in compared.stdout


def test_json_without_a_file_is_all_there_is_on_stdout(nodes):
    """A program reads it."""
    ended = benchmarks(
        "--cluster", ",".join(nodes), "--scenario", "one", "--contender", "floor", "--seconds", "0.02", "--rounds", "1",
        "--json",
    )  # fmt: skip
    assert json.loads(ended.stdout)["about"]["nodes"] == len(nodes)


def test_ctrl_c_leaves_what_was_measured_until_then(nodes, tmp_path):
    """Shown, written, and ended with 130; no child of it says a word."""
    command = [
        sys.executable, "-m", "benchmarks", "--cluster", ",".join(nodes), "--contender", "floor", "--contender", "ours",
        "--scenario", "one", "--scenario", "tasks-10", "--seconds", "0.05", "--rounds", "100",
        "--report", str(tmp_path),
    ]  # fmt: skip
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        said = []
        for line in process.stderr:
            said.append(line)
            if "round 3 of 100" in line:
                break
        # As the terminal does: to all of them.
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert process.returncode == 130, "".join([*said, err])
    assert "Traceback" not in err
    assert "Interrupted" in out
    kept = store.read(str(tmp_path))
    assert kept.about["interrupted"]
    assert all(len(each.values("p50")) >= 2 for each in kept.records[:2])
    assert "was interrupted" in (tmp_path / "index.html").read_text("utf-8")
