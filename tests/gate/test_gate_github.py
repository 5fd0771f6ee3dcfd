"""Outputs, summary and annotations against text that wants to be more than text."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from gate_examples import around, discarded, program_of, record_of, suite_of

from advisor.errors import UsageError
from advisor.gate import github, report
from advisor.gate.schema import Inputs, Revision
from tests.gate.repos import STEADY, fork_event, parse_outputs

NASTY = "x%y\r\n::error::injected,title=a:b\x1b[31m"


def record(name: str = "train", **changes: object):
    return record_of(program_of(around(100), around(90), name)).model_copy(update=changes)


def test_a_value_cannot_end_its_own_delimiter() -> None:
    values = {"verdict": "pass\nEOF\nverdict=regression", "pairs": "1"}
    text = github.delimited(values)
    assert parse_outputs(text) == values
    assert len(set(re.findall(r"<<(\S+)", text))) == 2


def test_an_annotation_is_one_line_with_nothing_to_obey() -> None:
    line = github.annotation(record(reason=NASTY), 1)
    assert not {"\n", "\r"} & set(line)
    assert line.startswith("::error title=Throughput gate%3A regression::x%25y%0D%0A::error")


@pytest.mark.parametrize(
    ("verdict", "asked", "code", "level"),
    [
        ("pass", "warn", 0, "notice"),
        ("regression", "warn", 1, "error"),
        ("inconclusive", "warn", 0, "warning"),
        ("no-baseline", "fail", 3, "error"),
        ("invalid", "fail", 4, "error"),
    ],
)
def test_the_level_follows_what_becomes_of_the_job(verdict, asked, code, level) -> None:
    inputs = Inputs(on_inconclusive=asked)
    line = github.annotation(record(verdict=verdict, inputs=inputs), code)
    assert line.startswith(f"::{level} ")


def test_the_log_obeys_no_command_while_the_program_runs(capsys) -> None:
    """The guard's token is fresh each time, and it is closed again, also after an error."""
    tokens = set()
    for _ in range(2):
        with pytest.raises(KeyError), github.no_commands():
            raise KeyError
        opened, closed = capsys.readouterr().err.split()
        token = opened.removeprefix("::stop-commands::")
        assert len(token) == 32
        assert closed == f"::{token}::"
        tokens.add(token)
    assert len(tokens) == 2


def test_the_report_starts_with_four_lines_to_act_on() -> None:
    lines = [line for line in report.lines(record()).splitlines() if line]
    assert [line.split(":")[0].strip("-* ") for line in lines] == [
        "Regression", "Slowdown", "Pairs", "Hardware",
    ]  # fmt: skip
    assert "99 % interval" in lines[1]


def commented(*rates: list[float], **inputs: Any) -> str:
    """Comment on pairs of these rates of base and head."""
    entry = program_of(*rates, "command", command="python bench.py --n 3")
    revisions = {arm: Revision(sha=letter * 40) for arm, letter in (("base", "b"), ("head", "d"))}
    return report.comment(record_of(entry, **inputs).model_copy(update=revisions))


def test_a_comment_is_understood_in_ten_seconds() -> None:
    """The number is in the title; one table has both commits; then how to repeat, how to accept."""
    marker, title, table, said, *folded = commented(around(185.7), around(162.1)).split("\n\n")
    assert marker == report.MARKER
    assert title == "### Throughput: 12.7 % slower (allowed 5 %)"
    head, _, row = table.splitlines()
    assert head == "|  | base bbbbbbb | head ddddddd | change | verdict |"
    assert row.startswith(
        "| `python bench.py --n 3` | 185.7 sample/s | 162.1 sample/s | **-12.7 %**"
    )
    proven, again, accept = said.splitlines()
    assert "proven slower by more than 5 % in 12 pairs" in proven
    assert "gpu-advisor gate --command 'python bench.py --n 3' --base-ref bbbbbbbbbbbb" in again
    assert "maintainer" in accept
    assert folded[0].startswith("<details>\n<summary>Machine, noise and rule")


def test_the_command_to_reproduce_judges_by_the_same_threshold() -> None:
    assert "--threshold" not in commented(around(100), around(80))
    assert "--base-ref bbbbbbbbbbbb --threshold 0.1`" in commented(
        around(100), around(80), threshold=0.1
    )


def test_pairs_of_one_workload_are_told_from_discarded_ones_of_all_programs() -> None:
    slow = program_of(around(100), around(80), "slow")
    other = discarded(program_of(around(100), around(100), "other"), "power brake", 1, 2)
    assert "Pairs: 12 of fresh processes" in report.lines(record_of(slow))
    text = report.lines(record_of(slow, other))
    assert "Pairs: 12 of the worst workload, of fresh processes" in text
    assert "2 discarded in all programs" in text


def test_a_comment_on_no_regression_asks_for_nothing() -> None:
    text = commented(around(100), around(101))
    assert "### Throughput: no regression, 1.0 % faster (allowed 5 %)" in text
    assert "Accept" not in text


def test_a_comment_is_cut_between_parts_and_never_inside_a_table() -> None:
    """Of two thousand benchmarks the worst are told, and every fold that is opened is closed."""
    names = {f"bench_{number}_{'x' * 60}": 100.0 for number in range(2000)}
    text = report.comment(record_of(suite_of(names, names)))
    assert len(text.encode()) <= report.COMMENT_BYTES
    assert text.count("| pass |") == report.ROWS
    assert "1980 more workloads are in the report" in text
    assert text.count("<details>") == text.count("</details>")
    assert text.splitlines()[-1] == "</details>"


@pytest.mark.parametrize(
    "said", ["@octocat", "see #12", "us/x#3", "GH-4", "https://evil.example", "www.evil.example",
             "a@evil.example", "a|b`c\n::error::x <script>"],
)  # fmt: skip
def test_a_comment_calls_nobody_leads_nowhere_and_obeys_nothing(said) -> None:
    """Names and messages of the program are shown; GitHub makes nothing of them."""
    found = record(f"name {said}")
    for text in (report.comment(found), report.markdown(found)):
        prose = re.sub(r"`[^`]*`|```.*?```", "", text, flags=re.DOTALL)
        assert said not in prose
        assert "<script>" not in text
        assert not re.search(r"^::error", text, re.MULTILINE)
        assert "\n" in said or said in prose.replace("\u2060", "").replace("\\", "")


@pytest.mark.parametrize("name", ["x\n::error::injected", "x\r\n::add-mask::y", "a ##[error]b",
                                  "\u2028::error::z", "   ::warning::w"])  # fmt: skip
def test_no_line_of_ours_is_a_command_because_of_a_name(name) -> None:
    lines = github.harmless(f"gate: {name}: pair 1\n{name}").splitlines()
    assert not any(line.lstrip().startswith("::") or "##[" in line for line in lines)


def test_steering_files_and_tokens_are_hidden_from_child_processes() -> None:
    environ = {
        "GITHUB_OUTPUT": "/o", "GITHUB_STEP_SUMMARY": "/s", "GITHUB_ENV": "/e", "PATH": "p",
        "GITHUB_TOKEN": "t", "NPM_TOKEN": "x", "AWS_SECRET_ACCESS_KEY": "y", "X_PAT": "z",
        "PLAIN": "ghp_0123456789abcdefABCDEF", "ACTIONS_RUNTIME_URL": "u",
        "TOKENIZERS_PARALLELISM": "false",
    }  # fmt: skip
    job = github.take(environ)
    assert str(job.output) == "/o"
    assert environ == {"PATH": "p", "TOKENIZERS_PARALLELISM": "false"}
    assert github.take(environ).withheld == ()


SELF_HOSTED = {"RUNNER_ENVIRONMENT": "self-hosted"}
OURS = {"repository": {"full_name": "us/x"}}
FOREIGN = [
    (fork_event(), SELF_HOSTED),
    (fork_event(), {}),
    ({"pull_request": {"head": {"repo": None}}}, SELF_HOSTED),  # deleted
    ({"pull_request": {"head": {"repo": {"fork": True}}}}, SELF_HOSTED),
    *((OURS, {"GITHUB_EVENT_NAME": kind}) for kind in (
        "merge_group", "workflow_dispatch", "repository_dispatch", "issue_comment",
        "workflow_run", "check_suite", "pull_request_review", "an_event_to_come",
    )),
]  # fmt: skip
OWN = [
    (fork_event(fork=False, head="us/x"), SELF_HOSTED),
    (fork_event(fork=True, head="us/x", base="us/x"), {}),  # the repository is a fork itself
    ({"before": "0"}, {"GITHUB_EVENT_NAME": "push"}),
    ({"schedule": "0 3 * * *"}, {"GITHUB_EVENT_NAME": "schedule"}),
]


def refused(event: object, env: dict[str, str], tmp_path: Path, **how: Any) -> bool:
    (tmp_path / "event").write_text(json.dumps(event))
    environ = {"GITHUB_EVENT_PATH": str(tmp_path / "event"), **env}
    try:
        github.refuse_foreign(environ, **{"allow": False, "unprotected": "", **how})
    except UsageError:
        return True
    return False


@pytest.mark.parametrize(("event", "env"), FOREIGN)
def test_code_that_may_be_a_forks_is_refused_on_self_hosted_runners(event, env, tmp_path) -> None:
    """Without isolation wherever it runs, and although it is allowed."""
    hosted = {**env, "RUNNER_ENVIRONMENT": "github-hosted"}
    assert refused(event, env, tmp_path)
    assert refused(event, hosted, tmp_path, allow=True, unprotected="all")
    assert not refused(event, env, tmp_path, allow=True)
    assert not refused(event, hosted, tmp_path)


@pytest.mark.parametrize(("event", "env"), OWN)
def test_code_of_this_repository_is_not_refused(event, env, tmp_path) -> None:
    assert not refused(event, env, tmp_path, unprotected="all")


@pytest.mark.parametrize("content", ["", "{", "[]", "\x00", None])
def test_an_event_that_cannot_be_read_is_refused(tmp_path, content) -> None:
    path = tmp_path / "event"
    if content is not None:
        path.write_text(content)
    with pytest.raises(UsageError, match="Nothing was run"):
        github.is_foreign({"GITHUB_EVENT_PATH": str(path)})
    with pytest.raises(UsageError, match="not known"):
        github.is_foreign({"GITHUB_ACTIONS": "true"})
    assert not github.is_foreign({})  # no job at all


HOSTILE = """
import os, sys
out = sys.stdout.buffer
out.write(b"::error::injected\\n::add-mask::throughput\\n::set-output name=verdict::pass\\n")
out.write(b"::stop-commands::x\\n::x::\\n\\x1b[31mred\\x1b[0m \\xff\\xfe not utf-8\\n")
out.write(b"gpu-advisor-EOF\\nverdict<<EOF\\npass\\nEOF\\n")
for name in ("GITHUB_OUTPUT", "GITHUB_ENV", "GITHUB_STEP_SUMMARY", "GITHUB_TOKEN"):
    assert name not in os.environ, name
out.write(b"y" * (2 << 20) + b"\\n")
out.flush()
sys.exit(9)
"""


def test_what_a_failing_program_prints_is_shown_and_steers_nothing(two) -> None:
    found = two(STEADY.format(rate=100), HOSTILE).on_github().gate("--command", "python bench.py")
    assert found.code == 2
    assert found.outputs["verdict"] == "error"
    commands = re.findall(r"^::(\S+)", found.stderr, re.MULTILINE)
    assert len(commands) == 3  # the guard, its end, our own annotation
    assert commands[0].startswith("stop-commands::")
    assert commands[2] == "error"
    assert "exit code 9" in found.summary
    assert not re.search(r"^(::|verdict)", found.summary, re.MULTILINE)
    assert len(found.summary) < 5000
