"""What is wrong, surprising or not permitted in a policy, said when it is written."""
