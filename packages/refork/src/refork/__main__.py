"""``python -m refork``: the command line, where the script is not on the path."""

from refork.cli import main

if __name__ == "__main__":
    main()
