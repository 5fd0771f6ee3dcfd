"""Random documents, one value set or one key added: no other byte may change, no other value.

The documents' writer knows where every value lies and what it means without asking the code
under test; results are read back by the loaders that users' programs have. Ten thousand
documents a format and operation:

    ADVISOR_EXAMPLES=10000 python -m pytest tests/config/test_document_properties.py
"""

from __future__ import annotations

import json
import os
import random
import re
from typing import Any

import pytest
from generated_documents import FORMATS, Steps, write
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from advisor.config import parse
from advisor.errors import EditRefusedError

EXAMPLES = int(os.environ.get("ADVISOR_EXAMPLES", "60"))
profile = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize="ADVISOR_EXAMPLES" not in os.environ,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
SEEDS = st.integers(0, 2**32)

NEW_VALUES = st.one_of(
    st.integers(-(2**40), 2**40),
    st.floats(allow_nan=False, allow_infinity=False),
    st.booleans(),
    st.text(max_size=12),
    st.sampled_from(["16-mixed", "bf16-mixed", "no", "1e-3", "http://x", "a # b", "null", "4", ""]),
)
SHAPES = st.recursive(
    st.just(None),
    lambda inner: st.lists(inner, max_size=4) | st.lists(inner, max_size=4).map(tuple),
    max_leaves=12,
)
"""Only shapes: a list is a mapping to be, a tuple a list, None a scalar."""


def path_of(steps: Steps) -> str:
    """Steps in the path syntax of documents."""
    path = ""
    for step in steps:
        if isinstance(step, int):
            path += f"[{step}]"
        elif re.fullmatch(r"[A-Za-z0-9_/+-]+", step):
            path += f".{step}" if path else step
        else:
            path += f"[{json.dumps(step, ensure_ascii=False)}]"
    return path


def put_at(tree: Any, steps: Steps, value: Any) -> Any:
    """`tree` with `value` at `steps`, in place."""
    if not steps:
        return value
    holder = tree
    for step in steps[:-1]:
        holder = holder[step]
    holder[steps[-1]] = value
    return tree


def look_up(tree: Any, steps: Steps) -> Any:
    for step in steps:
        tree = tree[step]
    return tree


def assert_is(got: Any, wanted: Any, old: Any, old_text: str) -> None:
    """The value read back is the one asked for, in the family of the one before."""
    if isinstance(got, str) and not isinstance(wanted, str):
        assert old_text[:1] in ("'", '"')
        assert isinstance(old, str)
        assert got.lower() == str(wanted).lower() or float(got) == wanted
    elif isinstance(wanted, (int, float)) and not isinstance(wanted, bool):
        assert got == wanted
        assert not isinstance(got, bool)
    else:
        assert type(got) is type(wanted)
        assert got == wanted


@pytest.mark.parametrize("form", FORMATS)
def test_setting_one_value_changes_its_bytes_and_nothing_else(form: str) -> None:
    load = FORMATS[form][1]

    @profile
    @given(SHAPES, SEEDS, NEW_VALUES)
    def holds(shape: Any, seed: int, new: Any) -> None:
        written, rng = write(form, shape, seed), random.Random(seed)
        raw, text = written.raw, written.text
        before = load(raw)
        document = parse(raw, form, "generated")  # type: ignore[arg-type]
        assert repr(document.data) == repr(before)
        assert document.with_values({}) == raw
        repeats = {path_of(steps) for steps in written.repeats}
        paths = {path_of(steps) for steps, *_ in written.leaves}
        assert set(document.scalars) == paths | repeats
        for path in repeats:
            assert not document.scalars[path].editable
        if not written.leaves:
            return
        steps, start, end, old = rng.choice(written.leaves)
        scalar = document.scalars[path_of(steps)]
        shift = 3 * written.bom
        first = shift + len(text[:start].encode())
        assert (scalar.span.start, scalar.span.end) == (
            first,
            first + len(text[start:end].encode()),
        )
        assert scalar.value == old
        if steps in written.tagged and isinstance(new, (str, bool)):
            with pytest.raises(EditRefusedError):
                document.with_values({path_of(steps): new})
            return
        edited = document.with_values({path_of(steps): new})
        assert edited.startswith(raw[:first])
        assert edited.endswith(raw[scalar.span.end :])
        after = load(edited)
        got = look_up(after, steps)
        assert_is(got, new, old, text[start:end])
        for repeat, target in written.repeats.items():
            if target == steps:
                put_at(before, repeat, got)
        assert repr(after) == repr(put_at(before, steps, got))

    holds()


@pytest.mark.parametrize("form", FORMATS)
def test_adding_a_key_keeps_every_byte_and_every_value(form: str) -> None:
    load = FORMATS[form][1]

    @profile
    @given(SHAPES, SEEDS, NEW_VALUES)
    def holds(shape: Any, seed: int, new: Any) -> None:
        written, rng = write(form, shape, seed), random.Random(seed)
        raw = written.raw
        before = load(raw)
        document = parse(raw, form, "generated")  # type: ignore[arg-type]
        places = [
            steps
            for steps in (*(leaf[0] for leaf in written.leaves), *written.repeats)
            if steps and isinstance(steps[-1], str)
        ]
        if not places:
            return
        beside = rng.choice(places)
        added = document.with_inserted(path_of(beside), "prefetch_factor", new)
        after = load(added)
        steps = (*beside[:-1], "prefetch_factor")
        assert_is(look_up(after, steps), new, None, "")
        holder = look_up(before, beside[:-1])
        items = list(holder.items())
        at = list(holder).index(beside[-1]) + 1
        holder.clear()
        holder.update([*items[:at], ("prefetch_factor", look_up(after, steps)), *items[at:]])
        assert repr(after) == repr(before)
        assert is_kept_within(raw, added)
        if b"\r\n" in raw and not re.search(rb"(?<!\r)\n", raw):
            assert not re.search(rb"(?<!\r)\n", added)

    holds()


def is_kept_within(raw: bytes, added: bytes) -> bool:
    """`added` is `raw` with one stretch put in, or a comma and one stretch."""
    start, end = alike(raw, added), alike(raw[::-1], added[::-1])
    if start + end >= len(raw):
        return True
    return any(
        added[at : at + 1] == b"," and alike(raw[at:], added[at + 1 :]) + end >= len(raw) - at
        for at in range(start + 1)
    )


def alike(one: bytes, other: bytes) -> int:
    """Length of what both begin with."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


def test_a_refusal_leaves_no_bytes_behind() -> None:
    """NaN is no value for a config, in any format."""
    for form, raw in {"json": b'{"a": 1}', "yaml": b"a: 1", "toml": b"a = 1"}.items():
        with pytest.raises(EditRefusedError):
            parse(raw, form, "x").with_values({"a": float("nan")})  # type: ignore[arg-type]
