"""The commands for the work in a live cluster: run, status, top, retry and clean."""
