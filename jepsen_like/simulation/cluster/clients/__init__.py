"""Administrators, clients and strangers of a simulated cluster."""
