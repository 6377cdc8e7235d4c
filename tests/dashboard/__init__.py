"""Tests of the dashboard in a headless browser, with a real cluster or a server that implements the API's contract."""
