"""What breaks in a simulated cluster, and when."""
