"""Config document with value places and verified edits."""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal, NoReturn

from advisor import masking
from advisor.config import (
    added,
    argv,
    json5,
    jsonc,
    leaves,
    python,
    spelling,
    swap,
    toml,
    yaml,
)
from advisor.config.leaves import Option, Scalar, Splice, Syntax
from advisor.errors import ConfigSyntaxError, ConfigUnreadableError, EditRefusedError
from advisor.model import JsonScalar

Format = Literal["json", "json5", "yaml", "toml", "python", "argv", "process"]

SYNTAXES: dict[Format, Syntax] = {
    "json": jsonc.SYNTAX,
    "json5": json5.SYNTAX,
    "yaml": yaml.SYNTAX,
    "toml": toml.SYNTAX,
    "python": python.SYNTAX,
    "argv": argv.SYNTAX,
    "process": jsonc.SYNTAX,  # what the probe told, which no file holds
}

SUFFIXES: dict[str, Format] = {
    ".json": "json",
    ".jsonc": "json",
    ".json5": "json5",
    ".yaml": "yaml",
    ".yml": "yaml",
    ".toml": "toml",
    ".py": "python",
}

MAX_VALUES = 50_000
"""Most values of a config. Real ones stay below 5,000; data files do not.

Judgement: fewer refuses a large config, more looks for knobs in a data file."""
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, kw_only=True)
class Document:
    """Config document: bytes, meaning and places of values."""

    name: str
    """Path, or name in messages."""
    format: Format
    raw: bytes
    text: str
    leaves: Mapping[str, Scalar]
    """By path; of equal ones the last leaf counts."""
    options: tuple[Option, ...] = ()
    """Options of a command's program, or fields that its config may hold."""

    @cached_property
    def scalars(self) -> Mapping[str, Scalar]:
        scalars = leaves.spelled(self.text, self.leaves.values(), SYNTAXES[self.format])
        return {leaf.path: leaf for leaf in scalars}

    def takes(self, path: str, value: JsonScalar) -> bool:
        try:
            self.with_values({path: value})
        except EditRefusedError:
            return False
        option = self.scalars[path].option
        return option is None or not option.choices or value in option.choices

    def with_values(self, values: Mapping[str, JsonScalar]) -> bytes:
        """Bytes with other values at these paths. Raises EditRefusedError."""
        expected = {path: leaf.value for path, leaf in self.leaves.items()}
        edits: dict[str, Splice] = {}
        for path, new in values.items():
            scalar = self.scalars.get(path)
            if scalar is None:
                self._refuse(f"has no single value at {path!r}")
            if not scalar.editable:
                self._leave(f"{path} cannot be edited: {scalar.why}")
            value = spelling.in_family(new, scalar.value, scalar.text)
            if spelling.is_same(value, scalar.value):
                continue
            edits[path] = self._splice(scalar, value)
            expected[path] = value
            if scalar.bare and scalar.option is None:
                del expected[path]
        return self._verified(edits, expected) if edits else self.raw

    def _refuse(self, fault: str) -> NoReturn:
        msg = f"{self.name} {fault}, so nothing was edited."
        raise EditRefusedError(msg)

    def _leave(self, reason: str) -> NoReturn:
        msg = f"{self.name}: {reason}. Edit it by hand."
        raise EditRefusedError(msg)

    def _splice(self, scalar: Scalar, wanted: JsonScalar) -> Splice:
        if not scalar.given and self.format != "argv":
            value = self._spell(wanted, None)
            line = added.member(self.text, self.format, scalar.start, scalar.path, value)
            return scalar.start, scalar.end, line
        if scalar.option is not None and (not scalar.given or scalar.option.form == "pair"):
            return self._option(scalar, scalar.option, wanted)
        if not scalar.bare:
            return scalar.start, scalar.end, self._spell(wanted, scalar.text)
        if wanted is not False:
            self._leave(f"{scalar.path} takes no value; it can only be left out (false)")
        return scalar.start - len(argv.SEPARATOR), scalar.end, ""

    def _option(self, scalar: Scalar, option: Option, wanted: JsonScalar) -> Splice:
        truth = wanted if isinstance(wanted, bool) else None
        is_flag, only_true = option.form in leaves.FLAGS, option.form == "bare"
        if wanted is None or (is_flag and truth is None) or (only_true and truth is False):
            self._refuse(f"cannot get {scalar.path} with the value {wanted!r}")
        spelled = str(truth) if truth is not None else self._spell(wanted, None)
        words = argv.SEPARATOR.join(option.words(spelled, truth))
        return scalar.start, scalar.end, words if scalar.given else argv.SEPARATOR + words

    def _spell(self, value: JsonScalar, old: str | None) -> str:
        """Spell `value` like `old`, if any."""
        syntax = SYNTAXES[self.format]
        if isinstance(value, bool):
            text = spelling.spell_boolean(value, old or "", syntax.true)
        elif isinstance(value, (int, float)):
            text = spelling.spell_number(value)
        elif isinstance(value, str):
            text = syntax.spell_text(value, old or "")
        elif syntax.null is None:
            self._refuse("has no spelling of an empty value")
        else:
            text = syntax.null
        return f" {text}" if old == "" else text

    def _verified(self, edits: dict[str, Splice], expected: dict[str, JsonScalar]) -> bytes:
        """Splice, parse again and verify that no other value has changed.

        Anchors, references and keys that are set twice let one edit change several values, in
        more ways than could be listed. What the result reads as shows them all.
        """
        content = self.spliced(edits.values())
        try:
            after = parse(content, self.format, self.name, self.options)
        except (ConfigSyntaxError, ConfigUnreadableError) as problem:
            self._refuse(f"would not parse any more ({problem})")
        if expected.keys() != after.leaves.keys() or any(
            not spelling.is_same(leaf.value, expected[path])
            for path, leaf in after.leaves.items()
            if path in edits or not leaf.derived
        ):
            edited = ", ".join(edits)
            self._leave(f"editing {edited} would change more than that, or read otherwise")
        return content

    def spliced(self, splices: Iterable[Splice]) -> bytes:
        """Replace parts of the text, unchecked."""
        mark = _BOM if self.raw.startswith(_BOM) else b""
        return mark + leaves.spliced(self.text, splices).encode()


def read(path: Path | str) -> Document:
    """Read a config. Raises ConfigMissingError, ConfigUnreadableError, ConfigSyntaxError."""
    path = Path(path)
    raw = swap.read_bytes(path)
    form = SUFFIXES.get(path.suffix.lower())
    if form is None:
        suffixes = ", ".join(SUFFIXES)
        msg = (
            f"{path} is no config that can be edited: its name ends in none of {suffixes}. Without "
            "a config, `gpu-advisor optimize -- COMMAND` tunes the command itself."
        )
        raise ConfigUnreadableError(msg)
    return parse(raw, form, str(path))


def parse(
    raw: bytes,
    format: Format,  # noqa: A002  the field's name
    name: str,
    options: tuple[Option, ...] = (),
) -> Document:
    """Parse a document from bytes; `name` appears in errors."""
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        bad = len(_BOM) * raw.startswith(_BOM) + problem.start
        msg = (
            f"{name} is not UTF-8: byte {raw[bad]:#04x} at offset {bad}. "
            "Convert the file to UTF-8 and call again."
        )
        raise ConfigUnreadableError(msg) from problem
    try:
        if format == "argv":
            scalars = argv.with_options(text, options)
        else:
            scalars = [*SYNTAXES[format].parse(text, name)]
            scalars = (
                added.with_options(text, scalars, options, format) if options else scalars
            )
    except (RecursionError, MemoryError) as problem:
        raise leaves.syntax_error(name, text, 0, leaves.TOO_DEEP) from problem
    by_path = {leaf.path: leaf for leaf in scalars}
    if len(by_path) > MAX_VALUES:
        msg = f"{name} holds more than {MAX_VALUES:,} values. Name the config, not a data file."
        raise ConfigUnreadableError(msg)
    return Document(
        name=name, format=format, raw=raw, text=text, leaves=by_path, options=options
    )


def with_fields(document: Document, options: Sequence[Option]) -> Document:
    """The document with what its program's parser says that it may hold."""
    return parse(document.raw, document.format, document.name, tuple(options))


def of_command(command: Sequence[str], options: Sequence[Option] = ()) -> Document:
    """Command as a document; `argv.split` gives an argv back."""
    raw = argv.SEPARATOR.join(command).encode()
    return parse(raw, "argv", "command line", tuple(options))


def masked_diff(before: Document, after: Document, name: str) -> str:
    """Unified diff of two documents, with secrets masked in both."""
    old, new = (_masked(side).splitlines(keepends=True) for side in (before, after))
    lines = difflib.unified_diff(old, new, f"a/{name}", f"b/{name}", n=2)
    return "".join(line if line.endswith("\n") else line + "\n" for line in lines)


def _masked(document: Document) -> str:
    splices = []
    for path, scalar in document.scalars.items():
        if not scalar.given:
            continue
        names = path.replace("[", ".").split(".")
        if any(masking.is_secret(name, scalar.value) for name in names):
            quote = scalar.text[:1] if scalar.text[:1] in {'"', "'"} else ""
            splices.append((scalar.start, scalar.end, f"{quote}{masking.MASK}{quote}"))
    return masking.mask_text(leaves.spliced(document.text, splices))
