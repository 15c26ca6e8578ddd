"""Where the nodes of a cluster stand: their network, disks and clocks, which can be broken in two tiers."""
