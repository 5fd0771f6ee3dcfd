"""A config the user already has, read with the bytes of every value, and edited by splicing."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, cast

from advisor.documents import files, jsonc, yaml
from advisor.errors import ConfigSyntaxError, ConfigUnreadableError, EditRefusedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from advisor.documents.leaves import Parsed
    from advisor.model import JsonScalar, Scalar, Span

Format = Literal["json", "jsonc", "yaml", "toml", "argv"]

_BOM = b"\xef\xbb\xbf"
_SUFFIXES = {
    ".json": "json",
    ".jsonc": "jsonc",
    ".json5": "jsonc",
    ".yaml": "yaml",
    ".yml": "yaml",
    ".toml": "toml",
}
_READERS: dict[str, Callable[[str, str, int], Parsed]] = {
    "json": jsonc.parse,
    "jsonc": jsonc.parse,
    "yaml": yaml.parse,
}
_SPELLERS: dict[str, Callable[[JsonScalar, str | None], str]] = {
    "json": jsonc.spell,
    "jsonc": jsonc.spell,
    "yaml": yaml.spell,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """One replaced stretch of bytes: `span` lies in the old file."""

    path: str
    span: Span
    old: bytes
    new: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One config. `raw` are its bytes; `parsed` what they mean and where."""

    path: Path | None
    name: str
    format: Format
    raw: bytes
    parsed: Parsed

    @property
    def data(self) -> Any:
        """The plain tree the usual loader gives; never to be changed in place."""
        return self.parsed.data

    @property
    def scalars(self) -> Mapping[str, Scalar]:
        """Every leaf that counts, by path, in document order."""
        return MappingProxyType(self.parsed.scalars)

    @property
    def aliases(self) -> Mapping[str, str]:
        """Paths that repeat another value, to the path where the literal is."""
        return MappingProxyType(self.parsed.aliases)

    @property
    def notes(self) -> tuple[str, ...]:
        """Oddities worth telling: duplicate keys, several documents."""
        return self.parsed.notes

    def edits(self, values: Mapping[str, JsonScalar]) -> tuple[Edit, ...]:
        """What `with_values` replaces, in file order. Raises EditRefusedError."""
        found = []
        for path, value in values.items():
            scalar = self._editable(path)
            wanted = in_family(value, scalar)
            if not _same(wanted, scalar.value):
                text = self._spell(wanted, scalar)
                found.append(self._edit(scalar, text))
        return tuple(sorted(found, key=lambda edit: edit.span.start))

    def with_values(self, values: Mapping[str, JsonScalar]) -> bytes:
        """The file with other values at these paths and every other byte as it was.

        A value keeps the spelling family of the one it replaces. The result is read again and
        compared with what was asked for. Raises EditRefusedError.
        """
        content = self._splice(self.edits(values))
        expected = {path: in_family(value, self.scalars[path]) for path, value in values.items()}
        self._verify(content, expected)
        return content

    def with_texts(self, texts: Mapping[str, str]) -> bytes:
        """The file with these values spelled exactly so: puts old text back.

        Raises EditRefusedError when a text would reach beyond its own value.
        """
        edits = [self._edit(self._editable(path), text) for path, text in texts.items()]
        content = self._splice(tuple(sorted(edits, key=lambda edit: edit.span.start)))
        self._verify(content, dict.fromkeys(texts, _ANYTHING))
        return content

    def _editable(self, path: str) -> Scalar:
        scalar = self.parsed.scalars.get(path)
        if scalar is None:
            msg = f"{self.name} has no single value at {path!r}, so it was not edited."
            raise EditRefusedError(msg)
        if not scalar.editable:
            msg = f"{self.name}: {path} was not edited: {scalar.why}."
            raise EditRefusedError(msg)
        return scalar

    def _edit(self, scalar: Scalar, text: str) -> Edit:
        old = self.raw[scalar.span.start : scalar.span.end]
        return Edit(path=scalar.path, span=scalar.span, old=old, new=text.encode())

    def _spell(self, value: JsonScalar, scalar: Scalar) -> str:
        if isinstance(value, float):
            text = spell_float(value)
        elif isinstance(value, bool):
            text = _spell_bool(value, scalar, self.parsed.scalars, self.format)
        else:
            return _SPELLERS[self.format](value, scalar.text)
        return text if scalar.text else f" {text}"

    def _splice(self, edits: tuple[Edit, ...]) -> bytes:
        pieces, done = [], 0
        for edit in edits:
            pieces += [self.raw[done : edit.span.start], edit.new]
            done = edit.span.end
        return b"".join([*pieces, self.raw[done:]])

    def _verify(self, content: bytes, expected: Mapping[str, JsonScalar]) -> None:
        """Only the atoms at these paths may differ between the two files' traces."""
        try:
            after = parse(content, self.format, self.name).parsed
        except (ConfigSyntaxError, ConfigUnreadableError) as problem:
            msg = f"{self.name} would no longer parse after the edit: {problem}"
            raise EditRefusedError(msg) from problem
        before = self.parsed
        touched = {before.atoms[path] for path in expected}
        same = len(before.trace) == len(after.trace) and all(
            one == other or number in touched
            for number, (one, other) in enumerate(zip(before.trace, after.trace, strict=True))
        )
        if not same or before.atoms != after.atoms:
            msg = f"{self.name}: editing {', '.join(expected)} would change more than that."
            raise EditRefusedError(msg)
        for path, value in expected.items():
            got = after.scalars[path].value
            if value is not _ANYTHING and not _same(got, value):
                msg = f"{self.name}: {path} would read as {got!r} instead of {value!r}."
                raise EditRefusedError(msg)
        if self.format in ("json", "jsonc"):
            self._verify_stripper(content, after.data)

    def _verify_stripper(self, content: bytes, data: Any) -> None:
        """Loaders that cut lines at `//` must go on reading what they read before."""
        if jsonc.survives_naive_stripper(
            _text(self.raw), self.parsed.data
        ) and not jsonc.survives_naive_stripper(_text(content), data):
            msg = f"{self.name}: a loader that strips // comments would misread the edited file."
            raise EditRefusedError(msg)


_ANYTHING = cast("JsonScalar", object())


def read(path: Path | str) -> Document:
    """The config at `path`.

    Raises ConfigMissingError, ConfigUnreadableError (a directory, a pipe, no permission, not
    UTF-8, over 2 MiB) or ConfigSyntaxError (with line and column).
    """
    path = Path(path)
    raw = files.read_bytes(path)
    return _parse(raw, _format_of(path, raw), str(path), path)


def parse(raw: bytes, format: Format, name: str) -> Document:  # noqa: A002  the domain's word
    """A document from bytes; `name` stands in messages. Raises as `read` does."""
    return _parse(raw, format, name, None)


def _parse(raw: bytes, format_: Format, name: str, path: Path | None) -> Document:
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        msg = (
            f"{name} is not UTF-8: byte {raw[problem.start]:#04x} at offset {problem.start}. "
            "Convert the file to UTF-8 and call again."
        )
        raise ConfigUnreadableError(msg) from problem
    bom = len(_BOM) if raw.startswith(_BOM) else 0
    parsed = _READERS[format_](text, name, bom)
    if format_ == "json" and not jsonc.is_strict(text):
        format_ = "jsonc"
    return Document(path=path, name=name, format=format_, raw=raw, parsed=parsed)


def _format_of(path: Path, raw: bytes) -> Format:
    known = _SUFFIXES.get(path.suffix.lower())
    if known:
        return cast("Format", known)
    return "json" if raw.removeprefix(_BOM).lstrip()[:1] in (b"{", b"[") else "yaml"


def _text(raw: bytes) -> str:
    return raw.decode("utf-8-sig")


# --- how a new value is spelled -----------------------------------------------------------

_NUMBER = re.compile(r"[-+]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")


def in_family(value: JsonScalar, scalar: Scalar) -> JsonScalar:
    """`value` as the type the document keeps there: a quoted number stays text, a float a float."""
    old = scalar.value
    quoted = scalar.text[:1] in ("'", '"')
    if isinstance(value, bool):
        return str(value) if quoted and old in ("True", "False") else value
    if isinstance(value, (int, float)):
        if isinstance(old, str) and quoted and _NUMBER.fullmatch(old):
            return spell_float(value) if isinstance(value, float) else str(value)
        if isinstance(old, float) and abs(value) < 2**53:
            return float(value)
        if isinstance(old, int) and not isinstance(old, bool) and value == int(value):
            return int(value)
    return value


def spell_float(value: float) -> str:
    """`0.0001`, never `1e-4`, which YAML 1.1 reads as text. Raises EditRefusedError for NaN."""
    if not math.isfinite(value):
        msg = f"{value} is no number to write into a config."
        raise EditRefusedError(msg)
    text = repr(value)
    if "e" not in text:
        return text
    mantissa, exponent = text.split("e")
    if abs(int(exponent)) <= 16:
        text = f"{value:.{max(1, len(mantissa.replace('.', '').lstrip('-')) - 1 - int(exponent))}f}"
        if float(text) == value:
            return text
    mantissa = mantissa if "." in mantissa else f"{mantissa}.0"
    return f"{mantissa}e{int(exponent):+03d}"


_BOOLS = [("true", "false"), ("yes", "no"), ("on", "off")]


def _spell_bool(value: bool, scalar: Scalar, scalars: Mapping[str, Scalar], format_: str) -> str:
    """In the spelling of the value replaced, else of the first boolean of the document."""
    text = scalar.text
    if not isinstance(scalar.value, bool):
        text = next((s.text for s in scalars.values() if isinstance(s.value, bool)), "true")
    pair = next((pair for pair in _BOOLS if text.lower() in pair), _BOOLS[0])
    word = pair[0] if value else pair[1]
    if format_ != "yaml":
        return word
    return (
        word.upper()
        if text.isupper() and len(text) > 1
        else word.title()
        if text[:1].isupper()
        else word
    )


def _same(one: JsonScalar, other: JsonScalar) -> bool:
    """Equal, and alike to any program: 1 and 1.0 are, True and 1 are not."""
    if isinstance(one, float) and isinstance(other, float) and math.isnan(one):
        return math.isnan(other)
    numbers = (int, float)
    if isinstance(one, numbers) and isinstance(other, numbers):
        return one == other and isinstance(one, bool) == isinstance(other, bool)
    return type(one) is type(other) and one == other
