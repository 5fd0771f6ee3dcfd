"""Config document with value places and verified edits."""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal, NoReturn

from advisor import masking
from advisor.config import argv, jsonc, python, spelling, swap, toml, yaml
from advisor.config.leaves import FLAGS, Leaf, Option, Parsed, Splice, Syntax, scalars, spliced
from advisor.errors import ConfigSyntaxError, ConfigUnreadableError, EditRefusedError
from advisor.model import JsonScalar, Scalar

Format = Literal["json", "yaml", "toml", "python", "argv"]

SYNTAXES: dict[Format, Syntax] = {
    "json": jsonc.SYNTAX,
    "yaml": yaml.SYNTAX,
    "toml": toml.SYNTAX,
    "python": python.SYNTAX,
    "argv": argv.SYNTAX,
}

SUFFIXES: dict[str, Format] = {
    ".json": "json",
    ".jsonc": "json",
    ".json5": "json",
    ".yaml": "yaml",
    ".yml": "yaml",
    ".toml": "toml",
    ".py": "python",
}

MAX_VALUES = 50_000
"""Most values. Real configs stay below 5,000; data files do not."""
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, kw_only=True)
class Document:
    """Config document: bytes, meaning and places of values."""

    path: Path | None
    name: str
    """Name in messages."""
    format: Format
    raw: bytes
    parsed: Parsed
    options: tuple[Option, ...] = ()
    """Options of a command's program."""

    @cached_property
    def scalars(self) -> Mapping[str, Scalar]:
        """Scalars by path, in order."""
        return scalars(self.parsed, self._syntax.comment)

    @property
    def _syntax(self) -> Syntax:
        return SYNTAXES[self.format]

    def takes(self, path: str, value: JsonScalar) -> bool:
        """Return True if `value` is writable at `path`."""
        scalar = self.scalars.get(path)
        if scalar is None or (scalar.choices and value not in scalar.choices):
            return False
        try:
            self.with_values({path: value})
        except EditRefusedError:
            return False
        return True

    def with_values(self, values: Mapping[str, JsonScalar]) -> bytes:
        """Return the bytes with other values at these paths. Raises EditRefusedError."""
        splices, wanted, gone = [], {}, set()
        for path, new in values.items():
            scalar = self.scalars.get(path)
            if scalar is None:
                self._refuse(f"has no single value at {path!r}")
            if not scalar.editable:
                self._leave(f"{path} cannot be edited: {scalar.why}")
            leaf = self.parsed.leaves[path]
            value = spelling.in_family(new, scalar)
            if spelling.is_same(value, scalar.value):
                continue
            splices.append(self._splice(leaf, value))
            if leaf.bare and leaf.option is None:
                gone.add(path)
            else:
                wanted[path] = value
        return self._verified(splices, wanted, gone)

    def _refuse(self, why: str) -> NoReturn:
        msg = f"{self.name} {why}, so nothing was edited."
        raise EditRefusedError(msg)

    def _leave(self, why: str) -> NoReturn:
        msg = f"{self.name}: {why}. Edit it by hand."
        raise EditRefusedError(msg)

    def _splice(self, leaf: Leaf, wanted: JsonScalar) -> Splice:
        if leaf.option is not None and (not leaf.given or leaf.option.form == "pair"):
            return self._option(leaf, leaf.option, wanted)
        if not leaf.bare:
            spelled = self._spell(wanted, self.parsed.text[leaf.start : leaf.end])
            return leaf.start, leaf.end, spelled
        if wanted is not False:
            self._leave(f"{leaf.path} takes no value; it can only be left out (false)")
        return leaf.start - len(argv.SEPARATOR), leaf.end, ""

    def _option(self, leaf: Leaf, option: Option, wanted: JsonScalar) -> Splice:
        truth = wanted if isinstance(wanted, bool) else None
        if wanted is None or (option.form in FLAGS and truth is None):
            self._refuse(f"cannot get {leaf.path} with the value {wanted!r}")
        if option.form == "bare" and truth is False:
            self._refuse(f"can only get {leaf.path} as true")
        spelled = str(truth) if truth is not None else self._spell(wanted, None)
        words = argv.SEPARATOR.join(option.words(spelled, truth))
        return leaf.start, leaf.end, words if leaf.given else argv.SEPARATOR + words

    def _spell(self, value: JsonScalar, old: str | None) -> str:
        """Spell `value` like `old`, if there is any."""
        if isinstance(value, bool):
            like = old if old and spelling.is_boolean(old) else self._syntax.true
            text = spelling.spell_boolean(value, like)
        elif isinstance(value, (int, float)):
            text = spelling.spell_number(value)
        elif isinstance(value, str):
            text = self._syntax.spell_text(value, old or "")
        elif self._syntax.null is None:
            self._refuse("has no spelling of an empty value")
        else:
            text = self._syntax.null
        return f" {text}" if old == "" else text

    def _verified(
        self, splices: Sequence[Splice], wanted: Mapping[str, JsonScalar], gone: set[str]
    ) -> bytes:
        """Splice, parse again and verify the differences."""
        if not splices:
            return self.raw
        content = self.spliced(splices)
        try:
            after = parse(content, self.format, self.name, options=self.options).parsed
        except (ConfigSyntaxError, ConfigUnreadableError) as problem:
            self._refuse(f"would not parse any more ({problem})")
        before = {p: leaf.value for p, leaf in self.parsed.leaves.items() if p not in gone}
        changed = before.keys() | wanted.keys() != after.leaves.keys() or any(
            path not in wanted
            and not after.is_derived(path)
            and not spelling.is_same(after.leaves[path].value, value)
            for path, value in before.items()
        )
        if changed:
            edited = ", ".join([*wanted, *gone])
            self._leave(f"editing {edited} would change more than that")
        for path, value in wanted.items():
            got = after.leaves[path].value
            if not spelling.is_same(got, value):
                self._leave(f"{path} would read as {got!r}, not as {value!r}")
        return content

    def spliced(self, splices: Iterable[Splice]) -> bytes:
        """Return the bytes with parts of the text replaced; nothing is verified."""
        mark = _BOM if self.raw.startswith(_BOM) else b""
        return mark + spliced(self.parsed.text, splices).encode()


def read(path: Path | str) -> Document:
    """The config at `path`. Raises ConfigMissingError, ConfigUnreadableError, ConfigSyntaxError."""
    path = Path(path)
    raw = swap.read_bytes(path)
    form = SUFFIXES.get(path.suffix.lower())
    if form is None:
        known = ", ".join(SUFFIXES)
        msg = f"{path} is no config that can be edited: its name ends in none of {known}."
        raise ConfigUnreadableError(msg)
    return parse(raw, form, str(path), path)


def parse(
    raw: bytes,
    format: Format,  # noqa: A002  the field's name
    name: str,
    path: Path | None = None,
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
    parsed = argv.with_options(text, options) if options else SYNTAXES[format].parse(text, name)
    if len(parsed.leaves) > MAX_VALUES:
        msg = f"{name} holds more than {MAX_VALUES:,} values. Name the config, not a data file."
        raise ConfigUnreadableError(msg)
    return Document(path=path, name=name, format=format, raw=raw, parsed=parsed, options=options)


def of_command(command: Sequence[str], options: Sequence[Option] = ()) -> Document:
    """Command as a document; `argv.split` gives an argv back."""
    return parse(argv.join(command), "argv", "command line", options=tuple(options))


def masked_diff(before: Document, after: Document, name: str) -> str:
    """Unified diff of two configs with masked secrets."""
    old, new = (_masked(side).splitlines(keepends=True) for side in (before, after))
    lines = difflib.unified_diff(old, new, f"a/{name}", f"b/{name}", n=2)
    return "".join(line if line.endswith("\n") else line + "\n" for line in lines)


def _masked(document: Document) -> str:
    splices = []
    for path, leaf in document.parsed.leaves.items():
        names = path.replace("[", ".").split(".")
        if any(masking.is_secret(name, leaf.value) for name in names):
            first = document.parsed.text[leaf.start : leaf.start + 1]
            quote = first if first in {'"', "'"} else ""
            splices.append((leaf.start, leaf.end, f"{quote}{masking.MASK}{quote}"))
    return masking.mask_text(spliced(document.parsed.text, splices))
