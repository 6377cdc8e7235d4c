"""The leader of a partition: followers, ISR, high watermark, lease."""
