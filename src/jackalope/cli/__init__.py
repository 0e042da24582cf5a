"""The `jackalope` command: serves, works, submits, and shows what is going on.

Owns the terminal: options, tables and exit codes. Decides nothing about tasks.
"""

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line, and exit."""
    try:
        from jackalope.cli.app import run

        code = run(sys.argv[1:])
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)
