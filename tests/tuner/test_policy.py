"""The numbers of a search stand on one page, each with its meaning, and can be listed."""

import ast
import inspect

from advisor.tuner import policy


def test_each_number_says_what_it_means() -> None:
    """A string follows each assignment of the module."""
    page = ast.parse(inspect.getsource(policy)).body
    for number, after in zip(page, [*page[1:], None], strict=True):
        if isinstance(number, ast.Assign):
            assert isinstance(after, ast.Expr), ast.unparse(number)
            assert isinstance(after.value, ast.Constant), ast.unparse(number)


def test_the_list_has_every_number_of_the_page() -> None:
    names = {
        node.id
        for node in ast.walk(ast.parse(inspect.getsource(policy)))
        if isinstance(node, ast.Name) and node.id.isupper()
    }
    assert {line.partition(" = ")[0] for line in policy.listed().splitlines()} == names
    assert f"MIN_STEPS = {policy.MIN_STEPS}\n" in policy.listed()
