"""Requests to the controller: on the wire, forwarded, limited, and cut into parts."""
