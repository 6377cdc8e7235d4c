"""Commands that run Spark pipelines."""
