"""What must hold in a simulated cluster."""
