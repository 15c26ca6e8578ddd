"""The replicas of a broker: their roles, what their leaders and followers do, and who waits for them."""
