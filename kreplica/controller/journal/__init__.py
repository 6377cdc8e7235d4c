"""The controller's journal: its inputs and outputs on disk, from which a run can be replayed."""
