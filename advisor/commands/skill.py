"""`gpu-advisor skill`: a page for automated agents, which says when to call what."""

import argparse
import sys

from advisor.report import layout


def add_arguments(parser: argparse.ArgumentParser) -> None:
    del parser  # it takes none


def run(*_: object) -> int:
    sys.stdout.write(layout.source("skill.md"))
    return 0
