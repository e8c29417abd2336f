"""A small policy language, which `test_toy_dialect` adds to a copy of the source tree."""
