"""Tests of the generated settings page and of the example file."""

from __future__ import annotations

import re
from pathlib import Path

from kreplica.settings import BROKER_SETTINGS, TOPIC_SETTINGS, load
from kreplica.settings.reference import reference_page

ROOT = Path(__file__).parents[2]


def test_the_page_is_up_to_date():
    """If this fails: python -m kreplica.settings > docs/reference/settings.md"""
    assert (ROOT / "docs/reference/settings.md").read_text(encoding="utf-8") == reference_page()


def test_the_page_has_every_setting():
    """Each setting is in the section of its kind, with or without effect."""
    page = reference_page()
    effective, without_effect = page.split("## Settings without effect\n")
    for setting in (*BROKER_SETTINGS.values(), *TOPIC_SETTINGS.values()):
        assert f"| `{setting.name}` |" in (effective if setting.implemented else without_effect)


def test_the_example_of_a_broker_is_valid():
    """The example file causes no warning."""
    settings = load(ROOT / "etc/kreplica/broker.properties")
    assert settings.warnings == ()
    assert settings["broker.id"] == 1
    assert settings.log_dirs == ("/var/lib/kreplica",)


def test_what_the_example_shows_as_comment_is_valid_too(tmp_path):
    """Settings in comments are valid too."""
    text = (ROOT / "etc/kreplica/broker.properties").read_text(encoding="utf-8")
    bare, count = re.subn(r"^#(?=[a-z.]+=)", "", text, flags=re.MULTILINE)
    assert count > 5
    path = tmp_path / "broker.properties"
    path.write_text(bare, encoding="utf-8")
    assert load(path).warnings == ()
