"""The classic protocol: members join and wait for each other, and one of them computes the assignment."""
