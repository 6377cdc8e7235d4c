"""Replay of Parquet files into topics."""
