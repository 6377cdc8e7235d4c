"""``python -m kreplica.settings > docs/reference/settings.md``: writes the reference page."""

import sys

from kreplica.settings.reference import reference_page

if __name__ == "__main__":
    sys.stdout.write(reference_page())
