"""The reference page and the example files match the definitions."""

from __future__ import annotations

import re
from pathlib import Path

from kreplica.settings import BROKER_SETTINGS, TOPIC_SETTINGS, load
from kreplica.settings.reference import reference_page

ROOT = Path(__file__).parents[2]


def test_page_is_up_to_date():
    """If this fails: python -m kreplica.settings > docs/reference/settings.md"""
    assert (ROOT / "docs/reference/settings.md").read_text(encoding="utf-8") == reference_page()


def test_page_has_every_setting():
    """Supported settings are listed with a description, unsupported settings with a note."""
    page = reference_page()
    effective, without_effect = page.split("## Settings without effect\n")
    for setting in (*BROKER_SETTINGS.values(), *TOPIC_SETTINGS.values()):
        assert f"| `{setting.name}` |" in (effective if setting.implemented else without_effect)


def test_example_file_is_valid():
    """A broker starts with the example file without a warning."""
    settings = load(ROOT / "etc/kreplica/broker.properties")
    assert settings.warnings == ()
    assert settings["broker.id"] == 1
    assert settings.log_dirs == ("/var/lib/kreplica",)


def test_commented_settings_of_the_example_are_valid(tmp_path):
    text = (ROOT / "etc/kreplica/broker.properties").read_text(encoding="utf-8")
    uncommented, count = re.subn(r"^#(?=[a-z.]+=)", "", text, flags=re.MULTILINE)
    assert count > 5
    path = tmp_path / "broker.properties"
    path.write_text(uncommented, encoding="utf-8")
    assert load(path).warnings == ()
