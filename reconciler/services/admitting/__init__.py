"""Evaluation of the rules that change or refuse an object before it is stored."""
