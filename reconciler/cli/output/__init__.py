"""How all commands speak: exit codes, colours, width, tables and counts."""
