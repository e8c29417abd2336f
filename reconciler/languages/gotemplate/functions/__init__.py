"""The functions of Sprig, by family."""
