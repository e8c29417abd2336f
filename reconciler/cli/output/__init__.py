"""The output conventions of all commands: exit codes, colours, width, tables and counts."""
