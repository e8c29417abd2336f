"""The life cycle of an UpdateRequest: pure, values in and values out."""
