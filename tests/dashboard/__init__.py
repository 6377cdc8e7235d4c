"""The dashboard in a headless browser, with a real cluster, and with a server that implements the API's contract."""
