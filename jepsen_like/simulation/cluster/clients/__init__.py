"""What administrators, clients and strangers do to a simulated cluster."""
