"""Wire types of the cluster's objects: parse and render, nothing else."""
