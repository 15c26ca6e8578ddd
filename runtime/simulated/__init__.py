"""The ports of this package in virtual time and in memory: disk, loop, links, streams, RPC, with faults."""
