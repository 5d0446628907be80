"""Runs the command line: `python -P -m leadhand` is `leadhand`."""

from __future__ import annotations

from leadhand.cli import main

if __name__ == "__main__":
    main()
