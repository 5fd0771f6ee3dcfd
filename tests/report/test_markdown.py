"""Text of unknown origin is shown in Markdown and does nothing else there."""

from hypothesis import given, strategies as st
from markdown_it.token import Token

from advisor.report import markdown
from tests.report.test_golden import PARSER

SPECIAL = st.text(alphabet="`|\\*_[]()<>&!#~-+=.1$ ab\n\té\"'{}", max_size=40)


def inline(rendered: str) -> list[Token]:
    """What stands in the lines of a document."""
    return [child for token in PARSER.parse(rendered) for child in token.children or ()]


@given(SPECIAL)
def test_prose_stays_one_paragraph_of_text_and_code(raw) -> None:
    tokens = PARSER.parse(str(markdown.text(raw)))
    assert {token.type for token in tokens} <= {"paragraph_open", "inline", "paragraph_close"}
    kinds = {child.type for child in inline(str(markdown.text(raw)))}
    assert kinds <= {"text", "text_special", "code_inline"}


@given(SPECIAL.filter(lambda raw: "`" not in raw))
def test_prose_without_code_reads_as_written(raw) -> None:
    read = "".join(child.content for child in inline(str(markdown.text(raw))))
    # What would become a link is parted by a mark that nobody sees.
    assert read.replace(markdown.JOINER, "") == " ".join(raw.split())


@given(SPECIAL)
def test_code_shows_exactly_what_was_given(raw) -> None:
    children = inline(f"x {markdown.code(raw)} y")
    shown = " ".join(raw.split())
    assert [c.type for c in children] == ["text", "code_inline", "text"]
    assert children[1].content.strip() == shown


@given(SPECIAL, SPECIAL)
def test_a_table_row_keeps_its_cells(first, second) -> None:
    row = f"| {markdown.cell(first)} | {markdown.cell(markdown.code(second))} | end |"
    tokens = PARSER.parse(f"| a | b | c |\n|---|---|---|\n{row}\n")
    cells = [tokens[at + 1] for at, token in enumerate(tokens) if token.type == "td_open"]
    assert len(cells) == 3
    assert cells[2].content == "end"


@given(SPECIAL)
def test_a_fence_cannot_be_closed_from_inside(raw) -> None:
    block = markdown.fenced(f"first\n{raw}", "text")
    tokens = PARSER.parse(f"{block}\nafter\n")
    assert [token.type for token in tokens][:2] == ["fence", "paragraph_open"]


@given(SPECIAL)
def test_no_terminal_control_and_no_other_order_of_reading(raw) -> None:
    for show in (markdown.text, markdown.code, markdown.cell):
        shown = show(f"\x1b[31m{raw}\u202e")
        assert not {"\x1b", "\u202e"} & set(shown)


def test_code_spans_of_our_own_sentences_survive() -> None:
    assert markdown.text("`a_b` < 3 * `c`") == "`a_b` < 3 \\* `c`"


def test_values_are_spelled_as_in_the_config() -> None:
    assert markdown.value(True) == "`true`"
    assert markdown.value("16-mixed") == '`"16-mixed"`'
    assert markdown.value([256, 256]) == "`[256, 256]`"
    assert markdown.value(None) == "not set"
    assert len(markdown.value("x" * 500)) < 70
