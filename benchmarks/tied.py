"""Runs a module in a process that dies with the benchmark: ``-m benchmarks.tied PID MODULE``.

So even a killed benchmark leaves no worker behind that would disturb the next one.
"""

from __future__ import annotations

import runpy
import sys

from leadhand.process_guard import end_with_parent

if __name__ == "__main__":
    parent, module, *arguments = sys.argv[1:]
    end_with_parent(int(parent))
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
