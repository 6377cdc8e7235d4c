"""From a frame to its handler and from the handler to the response."""
