"""Archives of topics as Parquet files."""
