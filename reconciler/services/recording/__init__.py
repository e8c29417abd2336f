"""Recording of the triggers that admission sees, as stored requests."""
