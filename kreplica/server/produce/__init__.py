"""The produce path: validation, append, delayed acknowledgement and response."""
