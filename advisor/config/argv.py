"""Commands: flags are settings like any other.

The text is the argv joined by NUL, which no argument can hold. Flags before the program
are no settings. Untyped known options are leaves without text: setting one adds it.
"""

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePath

from advisor.config.leaves import FLAGS, Option, Scalar, Syntax
from advisor.model import JsonScalar

SEPARATOR = "\0"

_INTERPRETER = re.compile(r"(?:python|pypy)[\d.]*(?:\.exe)?|(?:ba|z|da)?sh")
_SCRIPT = re.compile(r".+\.(?:py|pyc|pyz|sh|bash)")
_PROFILERS = {
    *("cProfile", "profile", "pdb", "trace", "debugpy", "torch.utils.bottleneck"),
    *("coverage", "kernprof", "memray", "scalene", "viztracer"),
}
_LAUNCHER_MODULES = _PROFILERS | {
    "torch.distributed.run",
    "torch.distributed.launch",
    "accelerate.commands.launch",
    "deepspeed.launcher.runner",
}
_LAUNCHERS = _PROFILERS | {
    *("torchrun", "accelerate", "deepspeed", "horovodrun", "mpirun", "mpiexec", "srun"),
    *("composer", "colossalai", "fabric", "nsys", "ncu", "perf", "strace", "py-spy"),
    *(
        "env",
        "nohup",
        "time",
        "nice",
        "ionice",
        "timeout",
        "stdbuf",
        "numactl",
        "taskset",
        "sudo",
    ),
    *(
        "uv",
        "poetry",
        "pipenv",
        "pdm",
        "hatch",
        "conda",
        "mamba",
        "pixi",
        "rye",
        "xvfb-run",
    ),
    *("chrt", "catchsegv", "optirun", "apptainer", "singularity", "dotenv", "doppler"),
}
"""Programs that start another, named in their arguments."""
_LAUNCHERS_OWN = re.compile(r"-.*|[A-Za-z_]\w*=.*|run|\d+[smh]?")

_LONG = re.compile(r"(--?[A-Za-z][\w./-]*)=(.*)", re.DOTALL)
_ATTACHED = re.compile(r"(-[A-Za-z])(\d+(?:\.\d+)?)")
_FLAG = re.compile(r"--?[A-Za-z][\w./-]*")
_HYDRA = re.compile(r"\+{0,2}([A-Za-z_][\w./@-]*|[A-Za-z_]\w*(?::\w+)+)=(.*)", re.DOTALL)
_YACS = re.compile(r"[A-Z][A-Z0-9_]*(?:\.\w+)+")
"""Key whose value is the next word: `SOLVER.IMS_PER_BATCH 4`."""
_INT = re.compile(r"[-+]?\d[\d_]*")
_FLOAT = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_SEVERAL_VALUES = "it takes several values"
_SEVERAL = re.compile(r"[\[({].*|.*,.*", re.DOTALL)


def split(content: bytes) -> tuple[str, ...]:
    return tuple(content.decode().split(SEPARATOR))


def with_options(text: str, options: Sequence[Option]) -> list[Scalar]:
    words = text.split(SEPARATOR)
    starts = [0, *itertools.accumulate(len(word) + 1 for word in words)]
    scalars: list[Scalar] = []
    by_flag, spellings = {option.flag: option for option in options}, _spellings(options)
    no_value = {
        typed for typed, (flag, _) in spellings.items() if by_flag[flag].form in FLAGS
    }
    seen: set[str] = set()
    for number, typed, offset, reason in _flags(words, first_own_word(words), no_value):
        path, truth = _option_of(typed, spellings)
        seen.add(path)
        start, end = starts[number] + offset, starts[number] + len(words[number])
        bare = offset == 0 and words[number] == typed
        value = truth if bare else _value(words[number][offset:])
        scalars.append(Scalar(path, value, start, end, reason, bare, by_flag.get(path)))
    for option in by_flag.values():
        if option.flag not in seen:
            end = starts[option.behind + 1] - 1
            scalars.append(
                Scalar(option.flag, option.default, end, end, option=option, given=False)
            )
    return scalars


def _spellings(options: Sequence[Option]) -> dict[str, tuple[str, bool]]:
    """Flag by spelling, with False for the negation of a pair."""
    negations = {
        o.words("", False)[0]: (o.flag, False) for o in options if o.form == "pair"
    }
    typed = {word: (o.flag, True) for o in options for word in (o.flag, *o.others)}
    return negations | typed


def _option_of(typed: str, spellings: Mapping[str, tuple[str, bool]]) -> tuple[str, bool]:
    """Option of a flag, even abbreviated; an unknown flag is its own."""
    begin_so = {options for word, options in spellings.items() if word.startswith(typed)}
    if typed in spellings or not typed.startswith("--") or len(begin_so) != 1:
        return spellings.get(typed, (typed, True))
    return begin_so.pop()


def starts_another(word: str) -> bool:
    """True for an interpreter or launcher: the program stands behind it."""
    name = PurePath(word).name
    return name in _LAUNCHERS or _INTERPRETER.fullmatch(name) is not None


def first_own_word(words: Sequence[str]) -> int:
    """Index of the first program argument.

    Behind a launcher the program is a script, module or code, else the first word that
    is no option. A command without a program has no argument.
    """
    names = [PurePath(word).name for word in words]
    starts = list(map(starts_another, words))
    if not starts or not starts[0]:
        return min(1, len(words))
    interpreted = False
    for at, (before, word) in enumerate(zip(["", *words], words, strict=False)):
        is_module = before in ("-m", "--module") and word not in _LAUNCHER_MODULES
        is_code = interpreted and re.fullmatch("-[a-z]*c", before)
        if is_module or is_code or _SCRIPT.fullmatch(word):
            return at + 1
        interpreted = interpreted or _INTERPRETER.fullmatch(names[at]) is not None
    others = (at for at, is_launcher in enumerate(starts) if not is_launcher)
    behind = (at + 1 for at in others if not _LAUNCHERS_OWN.fullmatch(words[at]))
    return next(behind, len(words))


def _flags(
    words: Sequence[str], first: int, bare: Iterable[str]
) -> Iterator[tuple[int, str, int, str | None]]:
    """Find flags: word of the value, path, value offset, edit problem."""
    end = words.index("--", first) if "--" in words[first:] else len(words)
    words, number = words[:end], first
    keys = _yacs_keys(words, first)
    while number < len(words):
        word = words[number]
        if number in keys:
            number += 1
            yield number, word, 0, _several(words[number])
        elif (
            one := _LONG.fullmatch(word)
            or _ATTACHED.fullmatch(word)
            or _HYDRA.fullmatch(word)
        ):
            yield number, one[1], one.start(2), _several(one[2])
        elif _FLAG.fullmatch(word):
            values = list(itertools.takewhile(_is_value, words[number + 1 :]))
            if word in bare or not values or number + 1 in keys:
                yield number, word, 0, None
            else:
                several = len(values) > 1 and all(_FLOAT.fullmatch(v) for v in values)
                number += 1
                yield number, word, 0, _SEVERAL_VALUES if several else _several(values[0])
        number += 1


def _yacs_keys(words: Sequence[str], first: int) -> set[int]:
    pairs = enumerate(itertools.pairwise(words[first:]), first)
    return {
        number
        for number, (word, value) in pairs
        if _YACS.fullmatch(word) and _is_value(value) and not _YACS.fullmatch(value)
    }


def _is_value(word: str) -> bool:
    is_flag = word.startswith("-") and word != "-" and not _FLOAT.fullmatch(word)
    return not is_flag and not _HYDRA.fullmatch(word)


def _several(value: str) -> str | None:
    return _SEVERAL_VALUES if _SEVERAL.fullmatch(value) else None


def _value(word: str) -> JsonScalar:
    """Convert a word as argparse or Hydra would."""
    if _INT.fullmatch(word):
        return int(word)
    if _FLOAT.fullmatch(word):
        return float(word)
    return {"true": True, "false": False}.get(word.lower(), word)


SYNTAX = Syntax(
    parse=lambda text, _: with_options(text, ()),
    spell_text=lambda value, _: value,  # an argv needs no quoting
)
