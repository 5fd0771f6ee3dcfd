"""The interface of the three kinds, as the guardian of a trial calls it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping


class Isolation(Protocol):
    """One trial's isolation. The order of calls is the order below."""

    def enter(self) -> None:
        """Before anything of the program runs: this process moves in. Raises OSError."""

    def put(self, path: str, content: bytes) -> None:
        """Let `path` hold `content`, for the program alone. Only where writes are thrown away.

        Raises OSError.
        """

    def confine(self) -> None:
        """In the command's own process, just before it becomes the command. Raises OSError."""

    def serve(self) -> None:
        """Something can be read from `listens`."""

    @property
    def listens(self) -> int | None:
        """A descriptor to be watched while the program runs."""

    def changes(self) -> dict[str, Any] | None:
        """What the program would have changed; None where that is not known. Nothing runs any more.

        Keys: created, changed, removed, sealed (absolute paths; the last were shown read-only),
        full (bytes of the layer that is full, or None), denied (folders that it could not make).
        """

    def leave(self) -> None:
        """This process sees the host's files again, and the layers are gone."""


class Nothing:
    """No isolation: the probe listens to names, and that is all."""

    listens: int | None = None

    def enter(self) -> None:
        """Nothing to do."""

    def put(self, path: str, content: bytes) -> None:
        """Not to be asked: candidates lie beside their originals."""
        raise NotImplementedError

    def confine(self) -> None:
        """Nothing to do."""

    def serve(self) -> None:
        """Nothing to do."""

    def changes(self) -> dict[str, Any] | None:
        """Not known."""
        return None

    def leave(self) -> None:
        """Nothing to do."""


def isolation(told: Mapping[str, Any], cwd: str) -> Isolation:
    """The isolation of a trial in `cwd`; `told` is a Confinement as JSON."""
    match told["kind"]:
        case "overlay":
            from advisor.sandbox.overlay import Overlay

            return Overlay(told, cwd)
        case "landlock":
            from advisor.sandbox.landlock import Landlock

            return Landlock(told, cwd)
        case _:
            return Nothing()
