"""A broker that pretends to be of an earlier version: it reads and makes records of level 1 alone.

Run in the place of `python -m jackalope`. The level is lowered before any other module reads it.
"""

from jackalope.core import records

records.LEVEL = 1

from jackalope.cli import main  # noqa: E402

if __name__ == "__main__":
    main()
