"""Profiles of topics: sizes, rates, keys, codecs and producers."""
