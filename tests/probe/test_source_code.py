"""What single pieces of a program's code say."""

import ast

import pytest

from advisor.probe import source_code


@pytest.mark.parametrize(
    ("statement", "leaves", "without_returns"),
    [
        ("break", True, True),
        ("raise StopIteration", True, True),
        ("return best", True, False),
        ("sys.exit(0)", True, True),
        ("if deep:\n    os._exit(1)", True, True),
        ("continue", False, False),
        ("print(exit)", False, False),
    ],
)
def test_a_loop_is_left_by_a_statement_or_with_the_program(
    statement, leaves, without_returns
) -> None:
    """A return counts only where the reader asks for it: most guard against something else."""
    body = ast.parse(statement).body
    assert source_code.leaves_loop(body) is leaves
    assert source_code.leaves_loop(body, returns=False) is without_returns


@pytest.mark.parametrize(
    ("text", "name"),
    [("step", "step"), ("self.state.step", "step"), ("steps[0]", ""), ("run()", "")],
)
def test_the_last_part_of_a_name_is_its_name(text, name) -> None:
    assert source_code.last_name(ast.parse(text, mode="eval").body) == name


def test_a_file_that_is_no_python_is_told_apart_from_an_empty_one(tmp_path) -> None:
    """Of an empty file it is known that it names nothing; of the other it is not."""
    empty, broken = tmp_path / "empty.py", tmp_path / "broken.py"
    empty.write_text("")
    broken.write_text("def broken(:\n")
    assert source_code.tree_of(str(empty)) is not source_code.UNREAD
    assert source_code.tree_of(str(broken)) is source_code.UNREAD
    assert source_code.tree_of(str(tmp_path / "absent.py")) is source_code.UNREAD
