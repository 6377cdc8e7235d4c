"""Event handlers of the controller, one module for each kind of event."""
