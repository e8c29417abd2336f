"""The desk, where policies are written: the engine of the controller on files."""
