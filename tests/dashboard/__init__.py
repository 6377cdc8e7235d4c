"""The dashboard in a real browser, headless: against a real cluster, and against a server that answers the contract."""
