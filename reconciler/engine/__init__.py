"""The pure engine: values in, values out; no I/O, no clock, no concurrency."""
