"""The command `smq`."""

import sys

from smq.cli.start import plain_options, start


def main() -> None:
    """Start a broker without Typer, which takes longer to import than the broker, or run a verb."""
    if not __debug__:
        raise SystemExit("smq: assertions are required; run without python's -O and PYTHONOPTIMIZE")
    verb, *arguments = sys.argv[1:] or [""]
    options = plain_options(arguments) if verb == "serve" else None
    if options is not None:
        raise SystemExit(start(options))
    from smq.cli.verbs import app  # noqa: PLC0415  (as above)

    app()


if __name__ == "__main__":
    main()
