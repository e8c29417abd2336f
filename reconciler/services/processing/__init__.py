"""From a stored request to changed targets and a status."""
