"""A read-only web page that shows the policies and requests of a cluster."""
