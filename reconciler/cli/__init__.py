"""The command line program `retrofit`, also `kubectl retrofit`."""
