"""`python -m jackalope`: the same as the command `jackalope`."""

from jackalope.cli import main

if __name__ == "__main__":
    main()
