"""The evaluation engine: pure functions on values, without I/O, clock or concurrency."""
