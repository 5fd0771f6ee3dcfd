"""Command line of the comparisons: see the package."""

import argparse
from pathlib import Path

import benchmarks.prediction


def main() -> None:
    """Run one comparison."""
    parser = argparse.ArgumentParser(
        description=benchmarks.prediction.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = ("images", "transfer", "language", "fits", "programs")
    parser.add_argument("name", choices=names)
    parser.add_argument("table", type=Path, nargs="?")
    parser.add_argument("--card")
    parser.add_argument("--source-table", type=Path)
    parser.add_argument("--source", help="card of --source-table")
    parser.add_argument("--models", type=int, default=60)
    parser.add_argument("--fitted", type=int, default=5, help="leave out one row in so many")
    args = parser.parse_args()
    from benchmarks.prediction import image_models, language_models, programs

    table, models = args.table, args.models
    calls = {
        "images": lambda: image_models.compare_speed(table, args.card, models, args.fitted),
        "transfer": lambda: image_models.compare_transfer(
            table, args.card, args.source_table, args.source, models
        ),
        "language": lambda: language_models.compare(table, args.fitted),
        "fits": lambda: image_models.compare_fits(table, models),
        "programs": programs.main,
    }
    calls[args.name]()


if __name__ == "__main__":
    main()
