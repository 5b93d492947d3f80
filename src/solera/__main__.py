"""`python -m solera`, and the command `solera`."""

import sys


def main() -> None:
    """Run the command line. The version is said without loading it."""
    if sys.argv[1:] == ["--version"]:
        from solera import __version__  # noqa: PLC0415

        print(f"solera {__version__}")  # noqa: T201
        return
    from solera.cli import main as run  # noqa: PLC0415

    run()


if __name__ == "__main__":
    main()
