"""Pure decisions: leader elections, state transitions and reassignment steps."""
