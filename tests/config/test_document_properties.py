"""Random documents, one value set: no other byte and no other value changes.

Results are read back by the loaders that users' programs have. For more documents:

    ADVISOR_EXAMPLES=10000 python -m pytest tests/config/test_document_properties.py
"""

import json
import os
import random
import re
import tomllib
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from advisor.config import Document, parse
from advisor.config.document import Format
from advisor.config.spelling import member
from advisor.errors import EditRefusedError

EXAMPLES = int(os.environ.get("ADVISOR_EXAMPLES", "150"))
KEYS = ("batch_size", "lr", "a", "num-workers", "odd key", "AdamW.lr", "größe", "no", "8")
TEXTS = ("fp16", "16-mixed", "no", "1e-3", "a # b", "http://x", "it's", 'say "x"', "", "null", "é☃")
NEW = (4, -7, 2**40, 0.25, 1e-7, 3e22, True, False, *TEXTS)


def tree(rng: random.Random, depth: int = 0) -> dict[str, Any]:
    """Random settings."""
    keys = rng.sample(KEYS, rng.randint(1, 4))
    return {key: value(rng, depth + 1) for key in keys}


def value(rng: random.Random, depth: int) -> Any:
    kind = rng.random()
    if depth < 4 and kind < 0.25:
        return tree(rng, depth)
    if depth < 4 and kind < 0.4:
        return [value(rng, depth + 1) for _ in range(rng.randint(0, 3))]
    return rng.choice([rng.randint(-9, 999), 0.5, 1e-5, True, False, *TEXTS])


def json_text(rng: random.Random, data: Any) -> str:
    gap = rng.choice(["", " ", "\n", "\n  ", "\t", " // c\n", ' /* "c" */ '])
    if isinstance(data, dict):
        members = [f"{gap}{json.dumps(k)}{gap}:{json_text(rng, v)}" for k, v in data.items()]
    elif isinstance(data, list):
        members = [json_text(rng, v) for v in data]
    else:
        return gap + json.dumps(data, ensure_ascii=rng.random() < 0.5) + gap
    comma = "," if members and rng.random() < 0.2 else ""
    inside = ",".join(members) + comma + gap
    return f"{gap}{{{inside}}}" if isinstance(data, dict) else f"{gap}[{inside}]"


def quoted(rng: random.Random, text: str) -> str:
    """Text in quotes of either kind, for YAML and TOML."""
    if "'" not in text and rng.random() < 0.5:
        return f"'{text}'"
    return json.dumps(text, ensure_ascii=False)


def flow_text(rng: random.Random, data: Any, sign: str) -> str:
    """A value on one line; `sign` stands behind a key."""
    if isinstance(data, dict):
        members = [f"{quoted(rng, k)}{sign} {flow_text(rng, v, sign)}" for k, v in data.items()]
        return "{" + ", ".join(members) + "}"
    if isinstance(data, list):
        return "[" + ", ".join(flow_text(rng, v, sign) for v in data) + "]"
    if isinstance(data, bool):
        return str(data).lower()
    return quoted(rng, data) if isinstance(data, str) else f"{data:f}".rstrip() if isinstance(
        data, float
    ) else str(data)  # fmt: skip


def yaml_text(rng: random.Random, data: Any, indent: str = "") -> str:
    lines = []
    for key, inner in data.items():
        name = key if key.isascii() and key.isidentifier() and key != "no" else quoted(rng, key)
        end = rng.choice(["", "  # c", "\n"]) + "\n"
        if isinstance(inner, dict) and rng.random() < 0.7:
            lines.append(f"{indent}{name}:\n{yaml_text(rng, inner, indent + '  ')}")
        elif isinstance(inner, list) and inner and rng.random() < 0.7:
            items = (f"{indent}- {flow_text(rng, each, ':')}{end}" for each in inner)
            lines.append(f"{indent}{name}:\n" + "".join(items))
        else:
            gap = " " * rng.randint(1, 4)
            lines.append(f"{indent}{name}:{gap}{flow_text(rng, inner, ':')}{end}")
    return "".join(lines)


def toml_text(rng: random.Random, data: Any, table: str = "") -> str:
    inner = {k: v for k, v in data.items() if isinstance(v, dict) and rng.random() < 0.6}
    lines = [f"[{table}]"] if table else []
    for key, each in data.items():
        if key not in inner:
            gap = " " * rng.randint(0, 3)
            end = rng.choice(["", " # c"])
            lines.append(
                f"{json.dumps(key, ensure_ascii=False)}{gap}={flow_text(rng, each, ' =')}{end}"
            )
    for key, each in inner.items():
        name = json.dumps(key, ensure_ascii=False)
        lines.append(toml_text(rng, each, f"{table}.{name}" if table else name))
    return "\n".join(lines) + "\n"


def python_value(rng: random.Random, data: Any) -> str:
    if isinstance(data, dict):
        if all(key.isidentifier() for key in data) and rng.random() < 0.5:
            return f"dict({', '.join(f'{k}={python_value(rng, v)}' for k, v in data.items())})"
        return "{" + ", ".join(f"{k!r}: {python_value(rng, v)}" for k, v in data.items()) + "}"
    if isinstance(data, list):
        return "[" + ", ".join(python_value(rng, v) for v in data) + "]"
    return repr(data)


def python_text(rng: random.Random, data: Any) -> str:
    named = {key if key.isidentifier() else "odd": inner for key, inner in data.items()}
    return "".join(
        f"{key} = {python_value(rng, inner)}{rng.choice(['', '  # c'])}\n"
        for key, inner in named.items()
    )


STRING = r'("(?:\\.|[^"\\])*")'


def load_json(text: str) -> Any:
    def keep(found: re.Match[str]) -> str:
        return found[1] or ""

    text = re.sub(rf"{STRING}|//[^\r\n]*|/\*.*?\*/", keep, text, flags=re.DOTALL)
    return json.loads(re.sub(rf"{STRING}|,(?=\s*[}}\]])", keep, text))


def load_python(text: str) -> Any:
    names: dict[str, Any] = {}
    exec(text, {}, names)
    return names


FORMATS: dict[Format, tuple[Callable[[random.Random, Any], str], Callable[[str], Any]]] = {
    "json": (json_text, load_json),
    "yaml": (yaml_text, yaml.safe_load),
    "toml": (toml_text, tomllib.loads),
    "python": (python_text, load_python),
}


def flat(data: Any, path: str = "") -> dict[str, Any]:
    """Leaves by path."""
    if isinstance(data, dict):
        below = {member(path, key): inner for key, inner in data.items()}
    elif isinstance(data, list):
        below = {member(path, number): inner for number, inner in enumerate(data)}
    else:
        return {path: data}
    return {
        found: leaf for inner, each in below.items() for found, leaf in flat(each, inner).items()
    }


def generated(form: Format, seed: int) -> tuple[random.Random, bytes, Document]:
    rng = random.Random(seed)
    text = FORMATS[form][0](rng, tree(rng))
    text = text.replace("\n", "\r\n") if rng.random() < 0.3 else text
    bom = b"\xef\xbb\xbf" if rng.random() < 0.2 else b""
    raw = bom + text.encode()
    return rng, raw, parse(raw, form, "generated")


def loaded(form: Format, raw: bytes) -> dict[str, Any]:
    return flat(FORMATS[form][1](raw.decode("utf-8-sig").replace("\r\n", "\n")))


def assert_is(got: Any, wanted: Any) -> None:
    """Equal, in the type that a program would tell apart; a quoted number stays quoted."""
    if isinstance(got, str) and not isinstance(wanted, str):
        assert got.lower() == str(wanted).lower() or float(got) == wanted
    else:
        assert got == wanted
        assert isinstance(got, bool) == isinstance(wanted, bool)


def check_edit(form: Format, seed: int) -> None:
    """Set one value of a random document, then a few more at once, and read both results back."""
    rng, raw, document = generated(form, seed)
    before = loaded(form, raw)
    assert {path: repr(s.value) for path, s in document.scalars.items()} == {
        path: repr(leaf) for path, leaf in before.items()
    }
    assert document.with_values({}) == raw
    places = [scalar for scalar in document.scalars.values() if scalar.editable]
    if not places:
        return
    scalar, new = rng.choice(places), rng.choice(NEW)
    edited = document.with_values({scalar.path: new})
    text = document.text
    assert edited.startswith(raw.removesuffix(text[scalar.start :].encode()))
    assert edited.endswith(text[scalar.end :].encode())
    assert_read_back(form, edited, before, {scalar.path: new})
    some = {each.path: rng.choice(NEW) for each in rng.sample(places, min(3, len(places)))}
    assert_read_back(form, document.with_values(some), before, some)


def assert_read_back(
    form: Format, edited: bytes, before: dict[str, Any], set_to: dict[str, Any]
) -> None:
    """Another reader finds these values, and every other as it was."""
    after, left = loaded(form, edited), dict(before)
    for path, new in set_to.items():
        assert_is(after.pop(path), new)
        left.pop(path)
    assert repr(after) == repr(left)


@pytest.mark.parametrize("form", FORMATS)
def test_setting_a_value_changes_its_bytes_and_nothing_else(form) -> None:
    for seed in range(EXAMPLES):
        check_edit(form, seed)


NIGHTLY_EXAMPLES = 8_400
"""Of each format: some 33,600 in all, with two edits each."""


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("form", FORMATS)
def test_many_documents_are_edited_byte_by_byte(form) -> None:
    """Others each night: a failure names its seed."""
    night = 10_000 * int(os.environ.get("SEED", "1"))
    failed = []
    for seed in range(night, night + NIGHTLY_EXAMPLES):
        try:
            check_edit(form, seed)
        except Exception as problem:
            failed.append(f"check_edit({form!r}, {seed}): {problem!r}")
    assert failed == []


def test_a_refusal_leaves_no_bytes_behind() -> None:
    """NaN is no value for a config, in any format."""
    for form, raw in {"json": b'{"a": 1}', "yaml": b"a: 1", "toml": b"a = 1"}.items():
        with pytest.raises(EditRefusedError):
            parse(raw, form, "x").with_values({"a": float("nan")})  # type: ignore[arg-type]
