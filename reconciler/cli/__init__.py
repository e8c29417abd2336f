"""The program at the desk: `retrofit`, also `kubectl retrofit`."""
