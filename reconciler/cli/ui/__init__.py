"""A page to look at the work of a cluster; it changes nothing."""
