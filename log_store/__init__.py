"""Logs in Kafka's own files: segments, indexes, leader epochs, checkpoints, recovery and retention.

Pure over the Disk port, so the same code runs on memory disks that crash.
"""
