"""Journal of the controller: its inputs and outputs, recorded on disk so that a run can be replayed later."""
