"""The command `retrofit migrate`: moves policies from one API group to the other."""
