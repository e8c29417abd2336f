"""The life cycle of an UpdateRequest, as pure functions without I/O."""
