"""Commands that query and change a running cluster through the admin API, and small tools such as ``completion``."""
