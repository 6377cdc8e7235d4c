"""Reports modules that this Python lacks: ``make`` runs it before it creates the virtual environment.

It has to run on every Python 3, so that an old one gets an answer and not a syntax error.
"""

# ruff: noqa: UP031, UP036 -- newer forms are syntax errors to an old Python

import sys

if sys.version_info < (3, 11):
    running = "%d.%d (%s)" % (sys.version_info[0], sys.version_info[1], sys.executable)
    sys.exit("kreplica: Python 3.11 or later is needed, and this is %s; make PYTHON=PATH takes another" % running)

try:
    import ensurepip  # noqa: F401
    import venv  # noqa: F401
except ImportError:
    package = "python%d.%d-venv" % sys.version_info[:2]
    sys.exit("kreplica: %s cannot make virtual environments; Debian: apt install %s" % (sys.executable, package))
