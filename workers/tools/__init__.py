"""Tools: the built-in ones, users' Python functions, and the body of a tool step.

It imports none of its modules: the process of an HTTP request needs one of them alone.
"""

from __future__ import annotations
