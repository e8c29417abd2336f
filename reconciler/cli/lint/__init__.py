"""`retrofit lint`: what is wrong with policies, with the lines where."""
