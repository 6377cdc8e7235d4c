"""Checks Python's version and modules before ``make`` creates the virtual environment.

With ``--build``, it prints the version, and "optimized" or "not optimized" (profile-guided optimization).
The file must be valid in every version of Python 3, so that old versions print the message and not a syntax error.
"""

# ruff: noqa: UP031, UP036, PTH -- newer forms are syntax errors in an old Python

import os
import runpy
import sys

if sys.version_info < (3, 11):
    running = "%d.%d (%s)" % (sys.version_info[0], sys.version_info[1], sys.executable)
    sys.exit("kreplica: Python 3.11 or later is required, not %s; select another one with make PYTHON=PATH" % running)

try:
    import ensurepip  # noqa: F401
    import venv  # noqa: F401
except ImportError:
    package = "python%d.%d-venv" % sys.version_info[:2]
    sys.exit("kreplica: %s cannot create virtual environments; Debian: apt install %s" % (sys.executable, package))

if sys.argv[1:] == ["--build"]:
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    print(runpy.run_path(os.path.join(root, "kreplica", "runtime", "interpreter.py"))["interpreter"]())
