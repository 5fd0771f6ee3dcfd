"""A config the user already has, with the bytes of every value, edited by verified splices."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from advisor.config import argv, files, spelling
from advisor.config.edits import (
    Edit,
    is_cut_alike,
    only_added,
    only_edited,
    others_stay,
    spliced,
)
from advisor.config.formats import SUFFIXES, SYNTAXES, Format
from advisor.errors import ConfigSyntaxError, ConfigUnreadableError, EditRefusedError
from advisor.model import Scalar, Span

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from advisor.config.leaves import Leaf, Parsed
    from advisor.config.options import Option
    from advisor.model import JsonScalar

_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True, kw_only=True)
class Absent:
    """A key that a mapping of the document does not have, and may get."""

    path: str
    beside: str
    """Path of a scalar of the same mapping: the new one is laid out as that."""
    key: str
    default: JsonScalar
    """What holds while it is not there."""
    source: str
    """Whose default that is."""

    @property
    def scalar(self) -> Scalar:
        """As a leaf without any text."""
        nowhere = Span(start=0, end=0)
        return Scalar(
            path=self.path, value=self.default, text="", span=nowhere, default_of=self.source
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One config: its bytes, what they mean, and where each value lies."""

    path: Path | None
    name: str
    """What messages call it."""
    format: Format
    raw: bytes
    parsed: Parsed
    options: tuple[Option, ...] = ()
    """Of a command: what its program is known to take."""
    absent: tuple[Absent, ...] = ()
    """Keys that may be added: scalars too, and a value set there is inserted."""

    @property
    def data(self) -> Any:
        """The plain tree the usual loader gives. Shared where aliases are; not to be changed."""
        return self.parsed.data

    @property
    def scalars(self) -> Mapping[str, Scalar]:
        """Every leaf that counts, by path, in document order; what may be added comes last."""
        if not self.absent:
            return self.parsed.scalars
        return {**self.parsed.scalars, **{each.path: each.scalar for each in self.absent}}

    @property
    def aliases(self) -> Mapping[str, str]:
        """Path that repeats another value (YAML's `*name`), to the path of the literal."""
        return MappingProxyType(self.parsed.aliases)

    @property
    def notes(self) -> tuple[str, ...]:
        """Oddities worth telling: duplicate keys, several documents in one file."""
        return self.parsed.notes

    def edits(self, values: Mapping[str, JsonScalar]) -> tuple[Edit, ...]:
        """What `with_values` replaces or adds, in file order; values that stay are left out.

        Raises EditRefusedError.
        """
        found = []
        for path, value in values.items():
            scalar = self._editable(path)
            wanted = spelling.in_family(value, scalar)
            if spelling.is_same(wanted, scalar.value):
                continue
            leaf = self.parsed.leaves[path]
            if leaf.option is not None and (not leaf.given or leaf.option.form == "pair"):
                found.append(self._as_option(scalar, leaf.option, wanted, given=leaf.given))
            elif leaf.bare:
                found.append(self._left_out(scalar, wanted))
            else:
                found.append(self._edit(scalar, self._spell(wanted, scalar.text)))
        return tuple(sorted(found, key=lambda edit: edit.span.start))

    def takes(self, path: str, value: JsonScalar) -> bool:
        """Whether `value` can be written at `path`, and is among the choices that are known."""
        scalar = self.scalars.get(path)
        if scalar is None or (scalar.choices and value not in scalar.choices):
            return False
        try:
            self.with_values({path: value})
        except EditRefusedError:
            return False
        return True

    def with_values(self, values: Mapping[str, JsonScalar]) -> bytes:
        """The file with other values at these paths and every other byte as it was.

        A value keeps the spelling family of the one it replaces. The result is read again: only
        these paths, and what refers to them, may have changed. Raises EditRefusedError.
        """
        missing = {each.path: each for each in self.absent}
        added = {
            path: value
            for path, value in values.items()
            if path in missing and not spelling.is_same(value, missing[path].default)
        }
        for path, value in reversed(added.items()):  # the next sees the file with this one
            content = self.with_inserted(missing[path].beside, missing[path].key, value)
            longer = _parsed(content, self.format, self.name, self.path)
            left = tuple(each for each in self.absent if each.path != path)
            others = {name: other for name, other in values.items() if name != path}
            return replace(longer, absent=left).with_values(others)
        values = {path: value for path, value in values.items() if path not in missing}
        edits = self.edits(values)
        wanted = {
            path: spelling.in_family(value, self.scalars[path]) for path, value in values.items()
        }
        content, after = self._spliced(edits)
        self._verify_stripper(after)
        for path, value in wanted.items():
            if path not in after.leaves:
                continue  # a bare flag, left out
            got = after.leaves[path].value
            if not spelling.is_same(got, value):
                msg = f"{self.name}: {path} would read as {got!r}, not as {value!r}."
                raise EditRefusedError(msg)
        return content

    def with_inserted(self, beside: str, key: str, value: JsonScalar) -> bytes:
        """The file with `key: value` added behind `beside`, laid out as `beside` is.

        `beside` is the path of a scalar in the mapping that gets the key. Verified as
        `with_values` is. Raises EditRefusedError, also when the key is already there.
        """
        syntax, text = SYNTAXES[self.format], self.parsed.text
        leaf = self.parsed.leaves.get(beside)
        if leaf is None or leaf.key is None:
            msg = f"{self.name} has no single value with a key of its own at {beside!r}."
            raise EditRefusedError(msg)
        if not syntax.new_key.fullmatch(key):
            msg = f"{self.name}: {key!r} is no key that can be added here."
            raise EditRefusedError(msg)
        added = syntax.member(leaf.parent, key)
        if any(
            path == added or path.startswith((f"{added}.", f"{added}["))
            for path in self.parsed.scalars
        ):
            msg = f"{self.name} has {added} already; set its value instead."
            raise EditRefusedError(msg)
        spelled = syntax.spell_key(key, text[slice(*leaf.key)]), self._spell(value, None)
        for offset, inserted in reversed(syntax.insert(text, leaf, *spelled, syntax.marker)):
            text = text[:offset] + inserted + text[offset:]
        content = (_BOM if self.raw.startswith(_BOM) else b"") + text.encode()
        self._verify_stripper(self._verify_inserted(content, leaf, added, value))
        return content

    def _editable(self, path: str) -> Scalar:
        scalar = self.parsed.scalars.get(path)
        if scalar is None:
            msg = f"{self.name} has no single value at {path!r}, so nothing was edited."
            raise EditRefusedError(msg)
        if not scalar.editable:
            msg = f"{self.name}: {path} cannot be edited: {scalar.why}."
            raise EditRefusedError(msg)
        return scalar

    def _edit(self, scalar: Scalar, text: str) -> Edit:
        old = self.raw[scalar.span.start : scalar.span.end]
        return Edit(path=scalar.path, span=scalar.span, old=old, new=text.encode())

    def _left_out(self, scalar: Scalar, wanted: JsonScalar) -> Edit:
        """The edit that removes a bare flag."""
        if wanted is not False:
            msg = f"{self.name}: {scalar.path} takes no value; it can only be left out (false)."
            raise EditRefusedError(msg)
        span = Span(start=scalar.span.start - len(argv.SEPARATOR), end=scalar.span.end)
        return Edit(path=scalar.path, span=span, old=self.raw[span.start : span.end], new=b"")

    def _as_option(
        self, scalar: Scalar, option: Option, wanted: JsonScalar, *, given: bool
    ) -> Edit:
        """The edit that adds an option of the program, or says the other of `--amp`, `--no-amp`."""
        truth = wanted if isinstance(wanted, bool) else None
        if wanted is None or (option.form in {"bare", "pair"} and truth is None):
            msg = f"{self.name}: {scalar.path} cannot be added with the value {wanted!r}."
            raise EditRefusedError(msg)
        if option.form == "bare" and truth is False:
            msg = f"{self.name}: {scalar.path} can only be added, which means true."
            raise EditRefusedError(msg)
        spelled = str(truth) if truth is not None else self._spell(wanted, None)
        words = argv.SEPARATOR.join(option.words(spelled, truth))
        return self._edit(scalar, words if given else argv.SEPARATOR + words)

    def _spell(self, value: JsonScalar, old: str | None) -> str:
        """`value` as it is written here; `old` is the text it replaces, None for a new key."""
        syntax = SYNTAXES[self.format]
        if isinstance(value, bool):
            text = spelling.spell_boolean(value, self._boolean_like(old))
        elif isinstance(value, (int, float)):
            text = spelling.spell_number(value)
        elif isinstance(value, str):
            text = syntax.spell_text(value, old or "")
        elif syntax.null is None:
            msg = f"{self.name}: this format has no way to write an empty value."
            raise EditRefusedError(msg)
        else:
            text = syntax.null
        return f" {text}" if old == "" else text

    def _boolean_like(self, old: str | None) -> str:
        """The spelling to follow: of the boolean replaced, else of the document's first."""
        if old and spelling.is_boolean(old):
            return old
        leaves = self.parsed.leaves.values()
        first = next((leaf for leaf in leaves if isinstance(leaf.value, bool)), None)
        return self.scalars[first.path].text if first else SYNTAXES[self.format].true

    def _spliced(self, edits: Sequence[Edit]) -> tuple[bytes, Parsed]:
        """The new file and what it means, once only what was edited differs."""
        if not edits:
            return self.raw, self.parsed
        content = spliced(self.raw, edits)
        before, after = self.parsed, self._reparse(content)
        same = only_edited(before, after, edits)
        if not same or (self.options and not others_stay(before, after, edits)):
            changed = ", ".join(edit.path for edit in edits)
            msg = f"{self.name}: editing {changed} would change more than that."
            raise EditRefusedError(msg)
        return content, after

    def _verify_inserted(self, content: bytes, leaf: Leaf, added: str, value: JsonScalar) -> Parsed:
        """The trace may only have gained the new key and value, right behind the sibling."""
        after = self._reparse(content)
        if not only_added(self.parsed, after, leaf, added):
            msg = f"{self.name}: adding {added} would change more than that."
            raise EditRefusedError(msg)
        new = after.leaves[added]
        if not spelling.is_same(new.value, value):
            msg = f"{self.name}: {added} would read as {new.value!r}, not as {value!r}."
            raise EditRefusedError(msg)
        return after

    def _reparse(self, content: bytes) -> Parsed:
        try:
            return _parsed(content, self.format, self.name, self.path, self.options).parsed
        except (ConfigSyntaxError, ConfigUnreadableError) as problem:
            msg = f"{self.name} would not parse any more, so it was not edited: {problem}"
            raise EditRefusedError(msg) from problem

    def _verify_stripper(self, after: Parsed) -> None:
        """A loader that cuts lines at `//` goes on reading what it read before."""
        if SYNTAXES[self.format].marker != "//" or after is self.parsed:
            return
        if not is_cut_alike(self.parsed, after):
            msg = f"{self.name}: a loader that cuts lines at // would misread the edited file."
            raise EditRefusedError(msg)


def read(path: Path | str) -> Document:
    """The config at `path`.

    Raises ConfigMissingError, ConfigUnreadableError (a directory, a pipe, no permission, not
    UTF-8, too large) or ConfigSyntaxError (with line and column).
    """
    path = Path(path)
    raw = files.read_bytes(path)
    known = SUFFIXES.get(path.suffix.lower())
    if known:
        return _parsed(raw, known, str(path), path)
    return _guessed(raw, path)


def _guessed(raw: bytes, path: Path) -> Document:
    """A file whose name tells no format, in the first one that finds settings in it."""
    opening = raw.removeprefix(_BOM).lstrip()[:1]
    guesses: tuple[Format, ...] = ("yaml", "toml")
    if opening in (b"{", b"["):  # a list, or the head of a table
        guesses = ("json",) if opening == b"{" else ("json", "toml")
    problems: list[ConfigSyntaxError] = []
    for guess in guesses:
        try:
            document = _parsed(raw, guess, str(path), path)
        except ConfigSyntaxError as problem:
            problems.append(problem)
            continue
        if isinstance(document.data, (dict, list)):
            return document
    if len(problems) == len(guesses):
        raise problems[0]
    msg = f"{path} holds no settings: it is no JSON, YAML or TOML. Name the config file."
    raise ConfigUnreadableError(msg)


def parse(raw: bytes, format: Format, name: str) -> Document:  # noqa: A002  the field's name
    """A document from bytes; `name` stands in messages. Raises as `read` does."""
    return _parsed(raw, format, name, None)


def of_command(command: Sequence[str], options: Sequence[Option] = ()) -> Document:
    """The user's command as a document; `split_command` turns edited bytes back into an argv.

    `options` of its program that were not typed are scalars too: a value set there is added.
    """
    return _parsed(argv.join(command), "argv", "command line", None, tuple(options))


def split_command(content: bytes) -> tuple[str, ...]:
    """The argv in the bytes of a document of `of_command`."""
    return argv.split(content)


def _parsed(
    raw: bytes, form: Format, name: str, path: Path | None, options: tuple[Option, ...] = ()
) -> Document:
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        bad = len(_BOM) * raw.startswith(_BOM) + problem.start
        msg = (
            f"{name} is not UTF-8: byte {raw[bad]:#04x} at offset {bad}. "
            "Convert the file to UTF-8 and call again."
        )
        raise ConfigUnreadableError(msg) from problem
    bom = len(raw) - len(text.encode())
    if options:
        parsed = argv.with_options(text, options, bom)
    else:
        parsed = SYNTAXES[form].parse(text, name, bom)
    if form == "json" and not parsed.is_strict:
        form = "jsonc"
    return Document(path=path, name=name, format=form, raw=raw, parsed=parsed, options=options)
