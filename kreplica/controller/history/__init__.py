"""Records of what the controller did and why: decision log, timeline and step metrics."""
