"""Command lines as documents: each flag is a setting, as a key of a config is.

The text of such a document is the words of the command, joined by NUL, which no argument can hold.
Flags before the program belong to its interpreter or launcher and are no settings. Options that
the program is known to take and that were not typed are leaves without text: setting one adds it.
"""

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import NamedTuple

from advisor.config.leaves import FLAGS, Option, Scalar, Syntax
from advisor.model import JsonScalar

SEPARATOR = "\0"
"""Stands between two words in the text of a command."""

# Lists of what stands before a program in a command: by judgement, what trainings are started by.
_INTERPRETER = re.compile(r"(?:python|pypy)[\d.]*(?:\.exe)?|(?:ba|z|da)?sh")
_SCRIPT = re.compile(r".+\.(?:py|pyc|pyz|sh|bash)")
_PROFILERS = {
    "cProfile", "profile", "pdb", "trace", "debugpy", "torch.utils.bottleneck",
    "coverage", "kernprof", "memray", "scalene", "viztracer",
}  # fmt: skip
_LAUNCHER_MODULES = _PROFILERS | {
    "torch.distributed.run",
    "torch.distributed.launch",
    "accelerate.commands.launch",
    "deepspeed.launcher.runner",
}
"""Modules behind `-m` that start another program, which their arguments name."""
_LAUNCHERS = _PROFILERS | {
    "torchrun", "accelerate", "deepspeed", "horovodrun", "mpirun", "mpiexec", "srun",
    "composer", "colossalai", "fabric", "nsys", "ncu", "perf", "strace", "py-spy",
    "env", "nohup", "time", "nice", "ionice", "timeout", "stdbuf", "numactl", "taskset", "sudo",
    "uv", "poetry", "pipenv", "pdm", "hatch", "conda", "mamba", "pixi", "rye", "xvfb-run",
    "chrt", "catchsegv", "optirun", "apptainer", "singularity", "dotenv", "doppler",
}  # fmt: skip
"""Programs that start another, which their arguments name."""
_LAUNCHERS_OWN = re.compile(r"-.*|[A-Za-z_]\w*=.*|run|\d+[smh]?")
"""Words for a launcher itself: options, `NAME=value`, `run`, a number or a time."""

_LONG = re.compile(r"(--?[A-Za-z][\w./-]*)=(.*)", re.DOTALL)
"""Flag with its value in one word: `--lr=1e-4`."""
_ATTACHED = re.compile(r"(-[A-Za-z])(\d+(?:\.\d+)?)")
"""Short flag with a number behind it: `-j2`."""
_FLAG = re.compile(r"--?[A-Za-z][\w./-]*")
"""Flag whose value, if any, is the next word: `--lr 1e-4`."""
_HYDRA = re.compile(r"\+{0,2}([A-Za-z_][\w./@-]*|[A-Za-z_]\w*(?::\w+)+)=(.*)", re.DOTALL)
"""Override of Hydra's kind, which has no dashes: `data.batch_size=16`, `+trainer.precision=16`.

Its second form is a key with a scope: `model:dropout=0.1`."""
_YACS = re.compile(r"[A-Z][A-Z0-9_]*(?:\.\w+)+")
"""Key whose value is the next word: `SOLVER.IMS_PER_BATCH 4`."""
_INT = re.compile(r"[-+]?\d[\d_]*")
_FLOAT = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_SEVERAL_VALUES = "it takes several values"
"""Reason why a value cannot be edited."""
_SEVERAL = re.compile(r"[\[({].*|.*,.*", re.DOTALL)
"""Word that holds several values: it begins with a bracket, or has a comma."""


class _TypedFlag(NamedTuple):
    """Flag in a command, and where its value stands."""

    flag: str
    """As typed, without its value."""
    number: int
    """Number of the word that holds the value, from 0; of a flag without one, its own."""
    offset: int = 0
    """Characters of that word before the value."""
    problem: str | None = None
    """Why the value cannot be edited; None if it can."""


def split(content: bytes) -> tuple[str, ...]:
    """Words of a command from the bytes of its document."""
    return tuple(content.decode().split(SEPARATOR))


def with_options(text: str, options: Sequence[Option]) -> list[Scalar]:
    """Scalars of a command: each flag that was typed, and each of `options` that was not.

    `options`: what the program is known to take; none where it is not known.
    """
    words = text.split(SEPARATOR)
    starts = [0, *itertools.accumulate(len(word) + len(SEPARATOR) for word in words)]
    scalars: list[Scalar] = []
    by_flag = {option.flag: option for option in options}
    spellings = _spellings(options)
    without_value = {
        spelling for spelling, (flag, _) in spellings.items() if by_flag[flag].form in FLAGS
    }
    seen: set[str] = set()
    keys = {flag for flag, option in by_flag.items() if option.form == "apart"}
    for typed in _typed_flags(words, first_own_word(words), without_value, keys):
        path, is_set_true = _option_of(typed.flag, spellings)
        seen.add(path)
        word, word_start = words[typed.number], starts[typed.number]
        start, end = word_start + typed.offset, word_start + len(word)
        bare = typed.offset == 0 and word == typed.flag
        value = is_set_true if bare else _value(word[typed.offset :])
        option = by_flag.get(path)
        scalars.append(Scalar(path, value, start, end, typed.problem, bare, option))
    for option in by_flag.values():
        if option.flag not in seen:
            place = starts[option.behind + 1] - len(SEPARATOR)  # the end of that word
            scalars.append(
                Scalar(
                    option.flag, option.default, place, place, option=option, given=False
                )
            )
    return scalars


def _spellings(options: Sequence[Option]) -> dict[str, tuple[str, bool]]:
    """Flag that each spelling sets, and whether it sets it true: `--no-amp` sets `--amp` false."""
    negations = {
        option.words("", False)[0]: (option.flag, False)
        for option in options
        if option.form == "pair"
    }
    spellings = {
        word: (option.flag, True)
        for option in options
        for word in (option.flag, *option.others)
    }
    return negations | spellings


def _option_of(typed: str, spellings: Mapping[str, tuple[str, bool]]) -> tuple[str, bool]:
    """Flag of the option that was typed, and whether it is set true.

    As in argparse, the beginning of a long flag stands for its option, if no other option begins
    so. A flag of no option stands for itself.
    """
    if typed in spellings:
        return spellings[typed]
    begin_so = {option for word, option in spellings.items() if word.startswith(typed)}
    if typed.startswith("--") and len(begin_so) == 1:
        return begin_so.pop()
    return typed, True


def starts_another(word: str) -> bool:
    """True for an interpreter or launcher: the program stands behind it."""
    name = PurePath(word).name
    return name in _LAUNCHERS or _INTERPRETER.fullmatch(name) is not None


def first_own_word(words: Sequence[str]) -> int:
    """Number of the first word, from 0, that is an argument of the program.

    Without an interpreter or launcher the first word is the program. Behind one it is a script, a
    module (`-m`) or code (`-c`), else the first word that is not the launcher's own. Where no
    program is seen, no word is its argument: the number is that of all words.
    """
    if not words or not starts_another(words[0]):
        return min(1, len(words))
    interpreted = False
    for number, (before, word) in enumerate(zip(["", *words], words, strict=False)):
        is_module = before in ("-m", "--module") and word not in _LAUNCHER_MODULES
        is_code = interpreted and re.fullmatch("-[a-z]*c", before)
        if is_module or is_code or _SCRIPT.fullmatch(word):
            return number + 1
        is_interpreter = _INTERPRETER.fullmatch(PurePath(word).name) is not None
        interpreted = interpreted or is_interpreter
    for number, word in enumerate(words):
        if not starts_another(word) and not _LAUNCHERS_OWN.fullmatch(word):
            return number + 1
    return len(words)


def _typed_flags(
    words: Sequence[str],
    first: int,
    without_value: Iterable[str],
    known_keys: Iterable[str] = (),
) -> Iterator[_TypedFlag]:
    """Flags among the words from number `first` on, up to `--`, which ends options.

    `without_value`: flags that are known to take none, so that the next word is not theirs.
    `known_keys`: words whose value is the next word, whatever they look like. Of any other flag
    the next word is the value, unless it is a flag itself. Several numbers in a row are taken for
    a list; of other words only the first is the flag's.
    """
    end = words.index("--", first) if "--" in words[first:] else len(words)
    words, number = words[:end], first
    keys = _keys(words, first, known_keys)
    while number < len(words):
        word = words[number]
        if number in keys:
            number += 1
            yield _TypedFlag(word, number, problem=_problem_of(words[number]))
        elif (
            joint := _LONG.fullmatch(word)
            or _ATTACHED.fullmatch(word)
            or _HYDRA.fullmatch(word)
        ):
            yield _TypedFlag(joint[1], number, joint.start(2), _problem_of(joint[2]))
        elif _FLAG.fullmatch(word):
            values = list(itertools.takewhile(_is_value, words[number + 1 :]))
            if word in without_value or not values or number + 1 in keys:
                yield _TypedFlag(word, number)
            else:
                is_list = len(values) > 1 and all(_FLOAT.fullmatch(v) for v in values)
                problem = _SEVERAL_VALUES if is_list else _problem_of(values[0])
                number += 1
                yield _TypedFlag(word, number, problem=problem)
        number += 1


def _keys(words: Sequence[str], first: int, known_keys: Iterable[str]) -> set[int]:
    """Numbers of the words from `first` on that are keys without dashes, with a value behind.

    YACS has such keys. So have parsers whose options are known to be `known_keys`.
    """
    pairs = enumerate(itertools.pairwise(words[first:]), first)
    declared = {word for word in known_keys if not word.startswith("-")}

    def is_key(word: str) -> bool:
        return word in declared or _YACS.fullmatch(word) is not None

    return {
        number
        for number, (word, value) in pairs
        if is_key(word) and _is_value(value) and not is_key(value)
    }


def _is_value(word: str) -> bool:
    """True for a word that can be the value of a flag before it; `-3` and `-` can."""
    is_flag = word.startswith("-") and word != "-" and not _FLOAT.fullmatch(word)
    return not is_flag and not _HYDRA.fullmatch(word)


def _problem_of(value: str) -> str | None:
    """Why a value cannot be edited; None if it can."""
    return _SEVERAL_VALUES if _SEVERAL.fullmatch(value) else None


def _value(word: str) -> JsonScalar:
    """Value that a word stands for: a number, true or false in any case, else the text itself."""
    if _INT.fullmatch(word):
        return int(word)
    if _FLOAT.fullmatch(word):
        return float(word)
    return {"true": True, "false": False}.get(word.lower(), word)


SYNTAX = Syntax(
    parse=lambda text, _: with_options(text, ()),
    spell_text=lambda value, _: value,  # an argv needs no quoting
)
