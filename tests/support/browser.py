"""Chromium without a window, as tests of pages start it."""

from pathlib import Path

QUIET = ("gpu", "sync", "background-networking", "component-update", "extensions", "quic")


def words(folder: Path) -> tuple[str, ...]:
    """Command that opens one page with a new profile in `folder`; console lines go to stderr.

    Other hosts than this one cannot be reached, so a page that needs one fails here too.
    """
    return (
        "chromium",
        "--headless",
        "--no-sandbox",
        "--no-first-run",
        *(f"--disable-{each}" for each in QUIET),
        f"--user-data-dir={folder / 'browser'}",
        "--virtual-time-budget=5000",
        "--enable-logging=stderr",
        "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    )
